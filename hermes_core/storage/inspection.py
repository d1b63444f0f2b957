"""What a PostgreSQL server says about our storage in it. It is as before afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from hermes_core.storage.postgres import (
    ROLE,
    Component,
    Connection,
    Database,
    component_version,
    differences,
    has_role,
)

_TABLES: Final = (
    "SELECT relname, relrowsecurity, relforcerowsecurity,"
    " EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = pg_class.oid) FROM pg_class"
    " WHERE relnamespace = to_regnamespace('hermes') AND relkind IN ('r', 'p') ORDER BY relname"
)
_OPEN: Final = (
    "SELECT relname, polname FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid"
    " WHERE relnamespace = to_regnamespace('hermes') AND polpermissive"
    " AND (strpos(coalesce(pg_get_expr(polqual, polrelid), ''), 'current_namespace()') = 0"
    " OR strpos(coalesce(pg_get_expr(polwithcheck, polrelid), ''), 'current_namespace()') = 0)"
    " ORDER BY 1, 2"
)
_READABLE: Final = (
    "SELECT DISTINCT relname FROM pg_class, aclexplode(relacl) WHERE relname = ANY (%(private)s)"
    " AND relnamespace = to_regnamespace('hermes')"
    " AND (grantee = 0 OR grantee = to_regrole(%(role)s)) ORDER BY 1"
)
_INVALID: Final = (
    "SELECT pg_class.relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
    " WHERE relnamespace = to_regnamespace('hermes') AND NOT (indisvalid AND indisready)"
)
# To freeze and to create tables takes their owner; without tables, whoever may create a schema.
_IS_OWNER: Final = (
    "SELECT coalesce((SELECT pg_has_role(current_user, nspowner, 'USAGE') FROM pg_namespace"
    " WHERE nspname = 'hermes'), has_database_privilege(current_database(), 'CREATE'))"
)
_OTHERS: Final = (
    "SELECT DISTINCT coalesce(host(client_addr), 'this machine') FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'hermes-plugins'"
    " AND pid != pg_backend_pid()"
)


@dataclass(frozen=True, slots=True)
class ServerReport:
    """A server, and our tables in one of its databases.

    Attributes:
        version: Of the server, such as "17.2".
        role: The role of our connections, which owns nothing; "" if it can't be used.
        user: The user that connects.
        is_owner: Whether that user owns our tables, or may create them.
        schemas: The version of each component; 0 if it has no tables yet.
        is_new: Whether there is nothing of ours in the database yet.
        problems: What is wrong with tables, their protection and their indexes, a line each.
        clients: The addresses from which others are connected as hermes-plugins.
    """

    version: str
    role: str
    user: str
    is_owner: bool
    schemas: dict[str, int]
    is_new: bool
    problems: tuple[str, ...]
    clients: tuple[str, ...]


def inspect_server(
    database: Database, components: Iterable[Component], *, thorough: bool = False
) -> ServerReport:
    """Look at a server and at our tables in it.

    Args:
        database: Where.
        components: Whose tables.
        thorough: Compare the schema with a new one, if the user who connects may create one.

    Raises:
        ForeignDatabase: They belong to another program, or to a newer version of this one.
        DatabaseError: The server can't be used.
    """
    with database.errors(), database.connected() as connection:
        wanted = list(components)
        versions = {
            each.name: component_version(connection, each, database.where) for each in wanted
        }
        user, database_name = connection.info.user, connection.info.dbname
        is_owner = connection.execute(_IS_OWNER).fetchone() == (True,)
        is_new = all(version < 0 for version in versions.values())
        role = ROLE if has_role(connection) else ""
        problems = [*_problems(connection, wanted, versions, thorough=thorough)]
        if is_new and not is_owner:
            problems.append(
                f"{user} may not create tables: GRANT CREATE ON DATABASE {database_name} TO {user}"
            )
        elif not role and not is_owner:
            problems.append(f"{user} may not store anything: GRANT {ROLE} TO {user}")
        return ServerReport(
            _shown(connection.info.server_version),
            role,
            user,
            is_owner,
            {name: max(version, 0) for name, version in versions.items()},
            is_new,
            tuple(problems),
            tuple(sorted(str(row[0]) for row in connection.execute(_OTHERS))),
        )


def _shown(version: int) -> str:
    return f"{version // 10_000}.{version % 10_000}"


def _problems(
    connection: Connection,
    components: list[Component],
    versions: dict[str, int],
    *,
    thorough: bool,
) -> Iterator[str]:
    for each in components:
        # 0: whoever needs its tables creates them, for example the first agent with a provider.
        if 0 < versions[each.name] < each.version:
            yield (
                f"the tables of the {each.name} have format {versions[each.name]}; the next agent "
                f"brings them to {each.version}"
            )
    there = [each for each in components if versions[each.name] == each.version]
    found = differences(connection, there) if thorough and there == components else None
    yield from _without_comparison(connection, components) if found is None else found
    for (name,) in connection.execute(_INVALID):
        yield f"the index {name} is not valid: run REINDEX INDEX hermes.{name}"


def _without_comparison(connection: Connection, components: list[Component]) -> Iterator[str]:
    """What is wrong with the protection, as far as whoever connects can see it."""
    private = [table for each in components for table in each.private]
    for table, *states in connection.execute(_TABLES):
        # These belong to no namespace, and our role may not change them.
        if table not in ("versions", "tenants", *private):
            yield from _unprotected(table, *states)
    for table, policy in connection.execute(_OPEN):
        yield f"the policy {policy} of the table {table} does not ask for the namespace"
    for (table,) in connection.execute(_READABLE, {"role": ROLE, "private": private}):
        yield f"the role {ROLE} may use the table {table}, which is private"


def _unprotected(table: str, enabled: Any, forced: Any, has_policy: Any) -> Iterator[str]:
    if not enabled or not has_policy:
        yield f"the table {table} is not protected by row-level security"
    elif not forced:
        yield f"the owner of the table {table} is exempt from row-level security"
