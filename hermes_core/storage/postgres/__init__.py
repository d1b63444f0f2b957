"""PostgreSQL for the storage of a home: connections, the schema, who sees what, and errors.

Import it only where ``memory.storage`` names a server: psycopg is an extra
(``hermes-plugins[postgres]``). `Database` is the one class through which this project uses
PostgreSQL. Everything is in the schema ``hermes``; each component (the archive, the notes, the
outbox) has its tables there and brings them as a `Component`.

Row-level security enforces the namespace a second time, below our queries. Connections use the
role ``hermes_tenant``, which owns nothing, and the policies compare each row with the setting
``hermes.namespace`` of the connection. Where that role is missing and may not be created, the
connection remains the owner, for whom the policies hold as well (``FORCE ROW LEVEL SECURITY``).
Whoever can send any statement can change a setting. The table ``hermes.tenants`` binds a login role
to a namespace; a session of such a role sees that one, whatever it sets.
"""

from hermes_core.storage.postgres.database import (
    CONNECT_SECONDS,
    STATEMENT_SECONDS,
    Database,
    known_database,
    shared_database,
)
from hermes_core.storage.postgres.differences import differences
from hermes_core.storage.postgres.errors import (
    NoAnswer,
    PostgresError,
    ServerFault,
    fault_of,
    is_temporary,
    is_undone,
)
from hermes_core.storage.postgres.schema import (
    FOR_NOBODY,
    NAMESPACE,
    ROLE,
    SCHEMA,
    Component,
    Connection,
    Migration,
    component_version,
    has_role,
    migrate,
    policy_changed,
    protect_table,
)
from hermes_core.storage.postgres.transactions import (
    Transactions,
    TranslatedConnection,
    from_text,
    to_text,
)

__all__ = [
    "CONNECT_SECONDS",
    "FOR_NOBODY",
    "NAMESPACE",
    "ROLE",
    "SCHEMA",
    "STATEMENT_SECONDS",
    "Component",
    "Connection",
    "Database",
    "Migration",
    "NoAnswer",
    "PostgresError",
    "ServerFault",
    "Transactions",
    "TranslatedConnection",
    "component_version",
    "differences",
    "fault_of",
    "from_text",
    "has_role",
    "is_temporary",
    "is_undone",
    "known_database",
    "migrate",
    "policy_changed",
    "protect_table",
    "shared_database",
    "to_text",
]
