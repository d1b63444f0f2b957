# ruff: noqa: S608 - our own constants
"""How our schema in a database differs from a new one: policies, rights, indexes, functions.

The new one is created in a transaction that is undone, so both are described by the same server.
Its versions write the same policy in different ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import psycopg

from hermes_core.storage.migration import create_frozen, has_frozen
from hermes_core.storage.postgres.schema import ROLE, Component, Connection, has_role, put_new

#: What nobody else may add. Others may have their own indexes, triggers and functions here.
_CLOSED: Final = ("policy", "right")
_WHOSE: Final = "CASE WHEN grantee = 0 THEN 'of everybody' ELSE 'of our role' END || ' to ' || "
#: Who may do what is compared for our role and for everybody.
_RIGHTS: Final = """
    SELECT {kind}, {name}, string_agg(privilege_type, ', ' ORDER BY privilege_type)
    FROM {catalog}, aclexplode({acl}) AS given WHERE {where}
    AND (grantee = 0 OR grantee = to_regrole(%(role)s)) GROUP BY 1, 2"""
_OURS: Final = "relnamespace = 'hermes'::regnamespace"
# `refuse_change` is there only if a namespace was ever frozen.
_FUNCTIONS: Final = (
    "pronamespace = 'hermes'::regnamespace AND prokind = 'f' AND proname != 'refuse_change'"
)
_CATALOG: Final = " UNION ALL ".join((
    f"""
    SELECT 'row-level security', 'of the table ' || relname,
        concat_ws(' ', relrowsecurity, relforcerowsecurity)
    FROM pg_class WHERE {_OURS} AND relkind IN ('r', 'p')""",
    f"""
    SELECT 'policy', polname || ' of the table ' || relname, concat_ws(' ', polpermissive, polcmd,
        polroles::text, pg_get_expr(polqual, polrelid), '/', pg_get_expr(polwithcheck, polrelid))
    FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid WHERE {_OURS}""",
    f"""
    SELECT 'index', relname::text, pg_get_indexdef(pg_class.oid)
    FROM pg_class WHERE {_OURS} AND relkind = 'i'""",
    f"""
    SELECT 'constraint', conname || ' of the table ' || relname,
        pg_get_constraintdef(pg_constraint.oid)
    FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
    WHERE {_OURS} AND contype IN ('p', 'u', 'f', 'c')""",
    f"""
    SELECT 'trigger', tgname || ' of the table ' || relname,
        tgenabled::text || ' ' || pg_get_triggerdef(pg_trigger.oid)
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid WHERE {_OURS} AND NOT tgisinternal""",
    f"""
    SELECT 'function', proname || '(' || pg_get_function_identity_arguments(oid) || ')',
        pg_get_functiondef(oid)
    FROM pg_proc WHERE {_FUNCTIONS}""",
    _RIGHTS.format(
        kind="'right'",
        name=f"{_WHOSE} relname",
        catalog="pg_class",
        acl="relacl",
        where=f"{_OURS} AND relkind IN ('r', 'p', 'v', 'm', 'S')",
    ),
    _RIGHTS.format(
        kind="'right'",
        name=f"{_WHOSE} attname || ' of ' || relname",
        catalog="pg_attribute JOIN pg_class ON pg_class.oid = attrelid",
        acl="attacl",
        where=_OURS,
    ),
    _RIGHTS.format(
        kind="'right'",
        name=f"{_WHOSE} proname || '(' || pg_get_function_identity_arguments(pg_proc.oid) || ')'",
        catalog="pg_proc",
        acl="coalesce(proacl, acldefault('f', proowner))",
        where=_FUNCTIONS,
    ),
))  # fmt: skip

_Description = dict[tuple[str, str], str]


def differences(connection: Connection, components: Sequence[Component]) -> list[str] | None:
    """What is not as in a new schema with these components, a line each.

    Returns:
        None if the user who connects may not create a schema.
    """
    there = _described(connection)
    with suppress(psycopg.errors.InsufficientPrivilege):
        with connection.transaction(force_rollback=True):
            was_frozen = has_frozen(connection)
            put_new(connection, components)
            if was_frozen:
                create_frozen(connection)
            new = _described(connection)
        is_used = has_role(connection)
        return [
            each
            for key in sorted(there.keys() | new.keys())
            if is_used or key[0] != "right"
            for each in _difference(key, there.get(key), new.get(key))
        ]
    return None


def _described(connection: Connection) -> _Description:
    rows = connection.execute(_CATALOG.encode(), {"role": ROLE})
    return {(str(kind), str(name)): str(definition) for kind, name, definition in rows}


def _difference(key: tuple[str, str], there: str | None, new: str | None) -> Iterator[str]:
    what = " ".join(key)
    if there is None:
        yield f"the {what} is missing"
    elif new is None:
        if key[0] in _CLOSED:
            yield f"the {what} was added ({there})"
    elif there != new:
        yield f"the {what} was changed"
