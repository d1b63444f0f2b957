"""Our schema in a database: its components, its version, its role, and who sees which rows."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import sql

from hermes_core.errors import ForeignDatabase

Connection = psycopg.Connection[tuple[Any, ...]]
Migration = str | Callable[[Connection], None]

SCHEMA: Final = "hermes"
#: The role of every connection; it owns nothing, so that no policy is passed by.
ROLE: Final = "hermes_tenant"
#: The namespace of a session, in SQL.
NAMESPACE: Final = "hermes.current_namespace()"
#: Whether a transaction acts for nobody in particular, in SQL: its scope names no person.
FOR_NOBODY: Final = "(SELECT coalesce(current_setting('hermes.scope', true), '')) IN ('', '{}')"
#: What makes a schema ours. Another program may have one called ``hermes``.
_MARK: Final = "hermes-plugins: the memory of AI agents"
#: A number for ``pg_advisory_xact_lock``: two processes that start don't both migrate.
_LOCK: Final = 0x48504D53  # "HPMS"
_OLDEST_SERVER: Final = 140_000
#: From this version on, members of a role need an option for SET ROLE.
_KNOWS_SET: Final = 160_000


@dataclass(frozen=True, slots=True)
class Component:
    """What one part of the storage has in the database.

    Attributes:
        name: Such as "archive"; its tables begin with it.
        migrations: The nth takes version n to n + 1. All that are needed run in one transaction,
            as the owner of the schema. A string may have several statements.
        private: Tables that the role may not use directly, only through functions.
        grants: For tables that the role may not insert into or change as it likes, what it may do.
        internal: Functions that trust whoever calls them, so only other functions may.
    """

    name: str
    migrations: Sequence[Migration]
    private: tuple[str, ...] = ()
    grants: Mapping[str, str] = field(default_factory=dict)
    internal: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The newest version."""
        return len(self.migrations)


def protect_table(table: str, condition: str = "true") -> str:
    """Statements that protect a table with a column ``namespace``.

    Args:
        table: Its name, without the schema.
        condition: What a row must fulfil besides, to be seen or written.
    """
    rule = _rule(condition)
    return f"""
ALTER TABLE {SCHEMA}.{table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {SCHEMA}.{table} FORCE ROW LEVEL SECURITY;
CREATE POLICY {table}_rows ON {SCHEMA}.{table} USING ({rule}) WITH CHECK ({rule});
"""


def policy_changed(table: str, condition: str) -> str:
    """A statement that gives the policy of such a table another condition."""
    rule = _rule(condition)
    return f"\nALTER POLICY {table}_rows ON {SCHEMA}.{table} USING ({rule}) WITH CHECK ({rule});\n"


def _rule(condition: str) -> str:
    # In a subquery, the function is called once per statement and not once per row.
    return f"namespace = (SELECT {NAMESPACE}) AND ({condition})"


def migrate(connection: Connection, component: Component, where: str) -> None:
    """Create or migrate the tables of a component, in one transaction.

    Raises:
        ForeignDatabase: The schema belongs to another program, or to a newer version of this
            one. It is not changed.
    """
    if connection.info.server_version < _OLDEST_SERVER:
        found = connection.info.server_version // 10_000
        raise ForeignDatabase(
            f"PostgreSQL {found} is too old", where=where, hint="it must be 14 or newer"
        )
    with connection.transaction():
        wanted = (_TENANTS_KEPT, component)
        if any(component_version(connection, each, where) != each.version for each in wanted):
            # Only now: whoever starts with a current schema waits for nobody. Then look again.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            for each in wanted:
                _upgrade(connection, each, where)
        _grant(connection, component)


def put_new(connection: Connection, components: Sequence[Component]) -> None:
    """Put a new schema in the place of ours, in a transaction that is undone; others see neither.

    Raises:
        psycopg.errors.InsufficientPrivilege: The user who connects may not do that.
    """
    # Nobody migrates the one that is there meanwhile.
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    connection.execute(f"ALTER SCHEMA {SCHEMA} RENAME TO {SCHEMA}_{secrets.token_hex(4)}".encode())
    _create(connection)
    for each in (_TENANTS_KEPT, *components):
        _upgrade(connection, each, SCHEMA)
        _grant(connection, each)


def _upgrade(connection: Connection, component: Component, where: str) -> None:
    """Bring a component to its newest version; create the schema, if there is none."""
    version = component_version(connection, component, where)
    if version < 0:
        _create(connection)
        version = 0
    if version == component.version:
        return
    for migration in component.migrations[version:]:
        if callable(migration):
            migration(connection)
        else:
            connection.execute(sql.SQL(migration))
    connection.execute(
        "INSERT INTO hermes.versions VALUES (%s, %s)"
        " ON CONFLICT (component) DO UPDATE SET version = excluded.version",
        (component.name, component.version),
    )


def component_version(connection: Connection, component: Component, where: str) -> int:
    """The version of a component; -1 if there is no schema yet. Raises if it is not ours."""
    row = connection.execute(
        "SELECT obj_description(oid, 'pg_namespace'), EXISTS (SELECT 1 FROM pg_class"
        " WHERE relnamespace = pg_namespace.oid AND relname = 'versions')"
        " FROM pg_namespace WHERE nspname = %s",
        (SCHEMA,),
    ).fetchone()
    if row is None:
        _refuse_tables_of_others(connection, where)
        return -1
    if row != (_MARK, True):
        raise ForeignDatabase(
            f"its schema {SCHEMA} belongs to another program",
            where=where,
            hint="it was not changed; use another database",
        )
    found = connection.execute(
        "SELECT version FROM hermes.versions WHERE component = %s", (component.name,)
    ).fetchone()
    version = int(found[0]) if found else 0
    if version > component.version:
        raise ForeignDatabase(
            f"its tables for the {component.name} are of a newer version of hermes-plugins "
            f"(format {version}, this one knows {component.version})",
            where=where,
            hint="it was not changed; upgrade hermes-plugins",
        )
    return version


# Functions don't count: providers and poolers put some into every database. A sequence is named
# last, since it may belong to a table.
_FOREIGN: Final = """
SELECT CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
    WHEN 'f' THEN 'foreign table' WHEN 'S' THEN 'sequence' ELSE 'table' END,
    relnamespace::regnamespace || '.' || quote_ident(relname)
FROM pg_class AS found
WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND relpersistence != 't'
AND relnamespace NOT IN (SELECT oid FROM pg_namespace
    WHERE starts_with(nspname, 'pg_') OR nspname IN ('information_schema', %(ours)s))
AND NOT EXISTS (SELECT 1 FROM pg_depend
    WHERE classid = 'pg_class'::regclass AND objid = found.oid AND deptype = 'e')
ORDER BY relkind = 'S', oid LIMIT 1
"""


def _refuse_tables_of_others(connection: Connection, where: str) -> None:
    """Raise if a database without our schema has tables, views or sequences.

    Those of extensions don't count. Nor do ours: another process may have created them a moment
    ago.
    """
    found = connection.execute(_FOREIGN, {"ours": SCHEMA}).fetchone()
    if found is not None:
        raise ForeignDatabase(
            f"it belongs to another program, which has the {found[0]} {found[1]}",
            where=where,
            hint="it was not changed; create an empty database for hermes-plugins",
        )


# A session can set every setting and give up its role, but can't change who logged in.
_TENANTS: Final = """
CREATE TABLE hermes.tenants (login name PRIMARY KEY, namespace text NOT NULL);
CREATE FUNCTION hermes.current_namespace() RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = hermes, pg_temp AS $$
BEGIN
    RETURN coalesce(
        (SELECT namespace FROM tenants WHERE login = session_user),
        current_setting('hermes.namespace', true));
END $$;
"""
# Without its row, a login would see every namespace that it sets. So the row can go only when the
# role is gone, or when it was renamed and its row with it.
_TENANTS_KEPT: Final = Component(
    "tenants",
    (
        """
CREATE FUNCTION hermes.tenant_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = OLD.login) THEN
        RAISE 'the login % is bound to the namespace %; without that, it sees all of them',
            OLD.login, OLD.namespace
            USING HINT = 'drop the role first, or bind it to another namespace with UPDATE',
                  ERRCODE = '2BP01';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tenant_kept_deleted BEFORE DELETE ON hermes.tenants
    FOR EACH ROW EXECUTE FUNCTION hermes.tenant_kept();
CREATE TRIGGER tenant_kept_updated BEFORE UPDATE ON hermes.tenants
    FOR EACH ROW WHEN (OLD.login != NEW.login) EXECUTE FUNCTION hermes.tenant_kept();
""",
        # TRUNCATE has no rows.
        """
CREATE OR REPLACE FUNCTION hermes.tenant_kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kept hermes.tenants;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        SELECT * INTO kept FROM hermes.tenants
        WHERE login IN (SELECT rolname FROM pg_roles) ORDER BY login LIMIT 1;
    ELSE
        SELECT OLD.* INTO kept WHERE EXISTS (SELECT 1 FROM pg_roles WHERE rolname = OLD.login);
    END IF;
    IF kept.login IS NOT NULL THEN
        RAISE 'the login % is bound to the namespace %; without that, it sees all of them',
            kept.login, kept.namespace
            USING HINT = 'drop the role first, or bind it to another namespace with UPDATE',
                  ERRCODE = '2BP01';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    IF TG_OP = 'UPDATE' THEN RETURN NEW; END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER tenant_kept_truncated BEFORE TRUNCATE ON hermes.tenants
    FOR EACH STATEMENT EXECUTE FUNCTION hermes.tenant_kept();
""",
    ),
)


def _create(connection: Connection) -> None:
    connection.execute("CREATE SCHEMA hermes")
    connection.execute(sql.SQL("COMMENT ON SCHEMA hermes IS {}").format(_MARK))
    connection.execute(
        "CREATE TABLE hermes.versions (component text PRIMARY KEY, version integer NOT NULL)"
    )
    connection.execute(_TENANTS)
    with suppress(psycopg.errors.InsufficientPrivilege), connection.transaction():
        _create_role(connection)


def _create_role(connection: Connection) -> None:
    """Create the role of our connections, unless it is there, and become a member of it."""
    name = sql.Identifier(ROLE)
    found = "SELECT 1 FROM pg_roles WHERE rolname = %s"
    if connection.execute(found, (ROLE,)).fetchone() is None:
        # Roles belong to the server, and another database may just have created it.
        taken = (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation)
        with suppress(*taken), connection.transaction():
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(name))
    if not has_role(connection):
        _join_role(connection)


def _join_role(connection: Connection) -> None:
    """Become a member of the role, only to use it with SET ROLE."""
    options = " WITH SET TRUE, INHERIT FALSE" if _knows_set(connection) else ""
    grant = sql.SQL(f"GRANT {{}} TO CURRENT_USER{options}")
    connection.execute(grant.format(sql.Identifier(ROLE)))


def has_role(connection: Connection) -> bool:
    """Whether there is the role that owns nothing, and this connection may use it."""
    return _may(connection, "SET" if _knows_set(connection) else "MEMBER")


def _knows_set(connection: Connection) -> bool:
    """Whether this server tells members who may use a role with SET ROLE from others.

    There, who creates a role is a member who may only let others use it.
    """
    return connection.info.server_version >= _KNOWS_SET


def _may(connection: Connection, right: str) -> bool:
    """Whether there is our role, and the user who connects has this right to it."""
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = %s"
        " AND pg_has_role(current_user, oid, %s))",
        (ROLE, right),
    ).fetchone()
    return bool(row and row[0])


def bound_namespace(connection: Connection) -> str:
    """The namespace of a session of this login, whatever it sets; "" if there is no schema yet."""
    is_there = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM pg_proc WHERE proname = 'current_namespace'"
        " AND pronamespace = to_regnamespace(%s))"
        " AND obj_description(to_regnamespace(%s), 'pg_namespace') = %s"
        # A role that was just created has it after the next `_grant`, and sees no row until then.
        " AND has_schema_privilege(to_regnamespace(%s), 'USAGE')",
        (SCHEMA, SCHEMA, _MARK, SCHEMA),
    ).fetchone()
    if is_there != (True,):
        return ""
    row = connection.execute(f"SELECT {NAMESPACE}").fetchone()
    return str(row[0]) if row else ""


#: The functions of a component that whoever connects may grant.
_THEIR_FUNCTIONS: Final = (
    "FROM pg_proc WHERE pronamespace = 'hermes'::regnamespace AND prokind = 'f'"
    " AND starts_with(proname, %(prefix)s) AND pg_has_role(current_user, proowner, 'USAGE')"
)


def _names(component: Component) -> dict[str, Any]:
    internal = list(component.internal)
    return {"prefix": f"{component.name}_", "internal": internal, "role": ROLE}


def _close_functions(connection: Connection, component: Component) -> None:
    """Take the functions of a component from everybody, who has every new one.

    They run as the owner of the tables. So they would let a login that may only read write, too.
    """
    is_open = (
        f"SELECT oid::regprocedure::text {_THEIR_FUNCTIONS} AND EXISTS ("  # noqa: S608 - constants
        "SELECT 1 FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) WHERE grantee = 0)"
    )
    if not connection.execute(is_open, _names(component)).fetchall():
        return
    # Two that start at once can't both change the rights of a function. Then look again.
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    for (function,) in connection.execute(is_open, _names(component)).fetchall():
        connection.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC".encode())


def _grant(connection: Connection, component: Component) -> None:
    """Let the role, and nobody else, use the tables and functions of a component.

    Not the private ones. At every start: an administrator may have created the role after the
    tables.
    """
    _close_functions(connection, component)
    if not has_role(connection):
        if not _may(connection, "MEMBER WITH ADMIN OPTION"):
            return
        _join_role(connection)
    for (function,) in connection.execute(
        f"SELECT oid::regprocedure::text {_THEIR_FUNCTIONS}"
        " AND proname != ALL(%(internal)s)"
        " AND NOT has_function_privilege(%(role)s, oid, 'EXECUTE')",
        _names(component),
    ).fetchall():
        grant = sql.SQL(f"GRANT EXECUTE ON FUNCTION {function} TO {{role}}")
        connection.execute(grant.format(role=sql.Identifier(ROLE)))
    tables = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'hermes'::regnamespace"
        " AND relkind = 'r' AND starts_with(relname, %s) AND relname != ALL(%s)"
        " AND NOT has_table_privilege(%s, oid, 'SELECT')",
        (f"{component.name}_", list(component.private), ROLE),
    ).fetchall()
    if not tables:
        return
    role = sql.Identifier(ROLE)
    grants = {
        f"{SCHEMA}.{table}": component.grants.get(table, "SELECT, INSERT, UPDATE, DELETE")
        for (table,) in tables
    }
    # No sequences: the numbers of rows need no right, and nobody else has to take one.
    grants |= {f"SCHEMA {SCHEMA}": "USAGE", f"{SCHEMA}.versions": "SELECT"}
    for what, rights in grants.items():
        statement = sql.SQL(f"GRANT {rights} ON {what} TO {{role}}")
        connection.execute(statement.format(role=role))
