"""What a provider wants to be told: its fields, and values for them."""

from __future__ import annotations

from hermes_core.schema._fields import Field, SchemaError, in_order, read_fields, variable_of
from hermes_core.schema._validation import (
    Problem,
    Settings,
    Value,
    allowed,
    json_schema,
    settle,
)
from hermes_core.schema._values import NotSuch, coerced

__all__ = [
    "Field",
    "NotSuch",
    "Problem",
    "SchemaError",
    "Settings",
    "Value",
    "allowed",
    "coerced",
    "in_order",
    "json_schema",
    "read_fields",
    "settle",
    "variable_of",
]
