"""Damage of the archive in PostgreSQL that whoever sees everything does not notice, and its repair.

A person is recognised by numbers and hashes that follow from the facts of a session. Where they
don't, that person finds nothing, or finds what belongs to somebody else.
"""

from __future__ import annotations

from typing import Final

from hermes_builtin.sessions.numbers import SESSION_BITS
from hermes_builtin.sessions.postgres.scopes import TRUSTED
from hermes_core.session import TERMINAL
from hermes_core.storage.postgres import NAMESPACE

_OWNED: Final = """theirs.number = session.owner AND theirs.namespace = session.namespace
    AND theirs.user_key = md5(theirs.user_id)::uuid
    AND theirs.user_id = session.user_id AND theirs.chat_id = session.chat_id
    AND theirs.profile = session.profile"""
#: Behind the last message of each session.
_BEHIND: Final = f"""(
        SELECT id >> {SESSION_BITS} AS number,
               ((max(id) & {(1 << SESSION_BITS) - 1}) >> 2)::integer + 1 AS place
        FROM archive_messages WHERE namespace = space GROUP BY 1) AS behind"""

DAMAGE: Final = f"""
CREATE FUNCTION hermes.archive_damage() RETURNS TABLE (what text, amount bigint)
LANGUAGE plpgsql STABLE {TRUSTED} AS $$
DECLARE
    space text := {NAMESPACE};
BEGIN
    PERFORM hermes.archive_check_scope();
    RETURN QUERY SELECT * FROM (VALUES
        ('sessions are not found by their ids', (
            SELECT count(*) FROM archive_sessions WHERE namespace = space
            AND (key != md5(id)::uuid OR name_key IS DISTINCT FROM
                 CASE WHEN name != '' THEN md5(name)::uuid END))),
        ('sessions are not found by the person they belong to', (
            SELECT count(*) FROM archive_sessions AS session WHERE namespace = space
            AND NOT EXISTS (SELECT 1 FROM archive_owners AS theirs WHERE {_OWNED}))),
        ('messages belong to another person than their sessions', (
            SELECT count(*) FROM archive_messages AS message JOIN archive_sessions AS session
            ON session.number = message.id >> {SESSION_BITS}
            WHERE message.namespace = space AND message.owner != session.owner)),
        ('sessions have wrong numbers for their next messages', (
            SELECT count(*) FROM archive_sessions AS session JOIN {_BEHIND} USING (number)
            WHERE session.next < behind.place OR session.indexed > session.next))
    ) AS found (what, amount) WHERE found.amount > 0;
END $$;

-- The facts of a session are right, whatever was made of them.
CREATE FUNCTION hermes.archive_repair() RETURNS void LANGUAGE plpgsql {TRUSTED} AS $$
DECLARE
    space text := {NAMESPACE};
BEGIN
    PERFORM hermes.archive_check_scope();
    UPDATE archive_owners SET user_key = md5(user_id)::uuid
    WHERE namespace = space AND user_key != md5(user_id)::uuid;
    UPDATE archive_sessions AS session SET owner = hermes.archive_owner(
        user_id, chat_id, profile,
        coalesce(nullif(platform, ''), nullif(source, ''), '{TERMINAL}'))
    WHERE namespace = space
    AND NOT EXISTS (SELECT 1 FROM archive_owners AS theirs WHERE {_OWNED});
    UPDATE archive_messages AS message SET owner = session.owner FROM archive_sessions AS session
    WHERE message.namespace = space AND session.number = message.id >> {SESSION_BITS}
    AND message.owner != session.owner;
    UPDATE archive_sessions AS session
    SET next = greatest(next, behind.place), indexed = least(indexed, behind.place)
    FROM {_BEHIND} WHERE session.number = behind.number
    AND (session.next < behind.place OR session.indexed > session.next);
    UPDATE archive_sessions SET key = md5(id)::uuid,
        name_key = CASE WHEN name != '' THEN md5(name)::uuid END
    WHERE namespace = space AND (key != md5(id)::uuid OR name_key IS DISTINCT FROM
        CASE WHEN name != '' THEN md5(name)::uuid END);
END $$;

-- Those messages that can't be found by all of their words, or by the person they belong to.
CREATE OR REPLACE FUNCTION hermes.archive_missing(wanted bigint[], texts text[])
RETURNS SETOF bigint LANGUAGE plpgsql STABLE {TRUSTED} AS $$
DECLARE
    space integer := hermes.archive_namespace();
    visible integer[] := hermes.archive_visible();
BEGIN
    RETURN QUERY SELECT given.id FROM unnest(wanted, texts) AS given (id, text)
    WHERE NOT EXISTS (
        SELECT 1 FROM archive_words AS known JOIN archive_messages AS message USING (id)
        WHERE known.id = given.id AND known.namespace = space
          AND (visible IS NULL OR known.owner = ANY (visible))
          AND known.owner = message.owner
          AND words @> hermes.archive_hashes(given.text, space)
          AND words @> ARRAY[hashint8extended(message.owner, space)]);
END $$;
"""
