"""Whether a requirement is for this interpreter: ``foo; python_version < "3.9"``."""

from __future__ import annotations

import ast
import os
import platform
import sys
from collections.abc import Callable
from typing import Final

from hermes_core.doctor._versions import is_met

_SIGNS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_VALUES: Final[dict[str, Callable[[], str]]] = {
    "extra": lambda: "",  # none was asked for
    "implementation_name": lambda: sys.implementation.name,
    "os_name": lambda: os.name,
    "platform_machine": platform.machine,
    "platform_python_implementation": platform.python_implementation,
    "platform_system": platform.system,
    "python_full_version": platform.python_version,
    "python_version": lambda: ".".join(platform.python_version_tuple()[:2]),
    "sys_platform": lambda: sys.platform,
}


def applies(marker: str) -> bool:
    """Whether a marker holds here. One that we can't read is taken to."""
    try:
        # What a marker looks like is an expression of Python too; it is read, never run.
        return _holds(ast.parse(marker.strip(), mode="eval").body)
    except (SyntaxError, ValueError, KeyError, RecursionError):
        return True


def _holds(node: ast.expr) -> bool:
    if isinstance(node, ast.BoolOp):
        results = [_holds(each) for each in node.values]
        return all(results) if isinstance(node.op, ast.And) else any(results)
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise ValueError("not a comparison")
    left, right = _text(node.left), _text(node.comparators[0])
    sign = node.ops[0]
    if isinstance(sign, ast.In | ast.NotIn):
        return (left in right) is isinstance(sign, ast.In)
    if isinstance(node.left, ast.Name) and "version" in node.left.id:
        return is_met(left, _SIGNS[type(sign)] + right)
    if isinstance(sign, ast.Eq | ast.NotEq):
        return (left == right) is isinstance(sign, ast.Eq)
    raise ValueError("not a version")


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return _VALUES[node.id]()
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError("neither a variable nor a text")
