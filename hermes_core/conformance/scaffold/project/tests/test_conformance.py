"""The rules that every host relies on. `pytest -k HP602` runs one of them."""

from hermes_core.conformance import conformance_suite

TestConformance = conformance_suite("acme")
