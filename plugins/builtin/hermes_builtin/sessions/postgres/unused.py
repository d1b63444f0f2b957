"""What leaves the archive in PostgreSQL with its last message: words, and ids of people.

The vocabulary and the owners are tables that messages and sessions refer to. Whoever forgets a text
or a person expects that no table has it any more.
"""

from __future__ import annotations

from typing import Final

from hermes_builtin.sessions.numbers import SESSION_BITS
from hermes_builtin.sessions.postgres.scopes import TRUSTED
from hermes_core.storage.postgres import NAMESPACE

#: So many messages are looked at first, of so many sessions: they have almost every frequent word.
_SESSIONS: Final = 20
_MESSAGES: Final = 50

UNUSED: Final = f"""
-- The owner of a session, for a transaction that begins one. The lock keeps the owner from being
-- removed meanwhile.
CREATE OR REPLACE FUNCTION hermes.archive_owner(
    the_user text, the_chat text, the_profile text, place text
) RETURNS integer LANGUAGE plpgsql {TRUSTED} AS $$
DECLARE
    wanted uuid := md5(jsonb_build_array(the_user, the_chat, the_profile, place)::text)::uuid;
    found integer;
BEGIN
    LOOP
        SELECT number INTO found FROM archive_owners
        WHERE namespace = {NAMESPACE} AND key = wanted FOR KEY SHARE;
        IF found IS NOT NULL THEN RETURN found; END IF;
        INSERT INTO archive_owners (namespace, key, user_key, user_id, chat_id, profile, platform)
        VALUES ({NAMESPACE}, wanted, md5(the_user)::uuid, the_user, the_chat, the_profile, place)
        ON CONFLICT DO NOTHING RETURNING number INTO found;
        IF found IS NOT NULL THEN RETURN found; END IF;
    END LOOP;
END $$;

-- Remove an owner without sessions; returns whether that was done. Who begins a session locks its
-- owner and then the session; who deletes a session has locked that. So don't wait here: an owner
-- that is locked has a session in a moment.
CREATE FUNCTION hermes.archive_disown(wanted integer) RETURNS boolean
LANGUAGE plpgsql {TRUSTED} AS $$
BEGIN
    PERFORM 1 FROM archive_owners
    WHERE number = wanted AND namespace = {NAMESPACE} FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR EXISTS (SELECT 1 FROM archive_sessions WHERE owner = wanted) THEN
        RETURN false;
    END IF;
    DELETE FROM archive_owners WHERE number = wanted;
    RETURN true;
END $$;

-- How many of some words, given as numbers of the index, are in the vocabulary but in no message;
-- they can be removed from it.
CREATE FUNCTION hermes.archive_unused_terms(candidates bigint[], clear boolean) RETURNS bigint
LANGUAGE plpgsql {TRUSTED} SET enable_seqscan = off AS $$
DECLARE
    space integer := hermes.archive_namespace();
    word text;
    amount bigint := 0;
BEGIN
    FOR word IN
        SELECT term FROM archive_terms WHERE namespace = space
        AND hashtextextended(term, namespace) = ANY (candidates)
    LOOP
        IF NOT EXISTS (
            SELECT 1 FROM archive_words WHERE words && hermes.archive_hashes(word, space))
        THEN
            amount := amount + 1;
            IF clear THEN
                DELETE FROM archive_terms WHERE namespace = space AND term = word;
            END IF;
        END IF;
    END LOOP;
    RETURN amount;
END $$;

-- Take messages out of the index, and words out of the vocabulary that nobody uses now.
CREATE OR REPLACE FUNCTION hermes.archive_unindex(doomed bigint[]) RETURNS void
LANGUAGE plpgsql {TRUSTED} SET enable_seqscan = off AS $$
DECLARE
    space integer := hermes.archive_namespace();
    candidates bigint[];
BEGIN
    PERFORM hermes.archive_check_scope();
    WITH gone AS (
        DELETE FROM archive_words WHERE id = ANY (doomed) AND namespace = space RETURNING words)
    SELECT array_agg(DISTINCT each) INTO candidates FROM gone, unnest(words) AS each;
    -- To know that a frequent word is used, don't read its list in the index, which is long.
    SELECT array_agg(each) INTO candidates FROM unnest(candidates) AS each
    WHERE each NOT IN (
        SELECT unnest(recent.words)
        FROM (SELECT number FROM archive_sessions WHERE namespace = {NAMESPACE}
              ORDER BY active DESC LIMIT {_SESSIONS}) AS session
        CROSS JOIN LATERAL (
            SELECT known.words FROM archive_words AS known
            WHERE known.id >= session.number << {SESSION_BITS}
              AND known.id < (session.number + 1) << {SESSION_BITS} AND known.namespace = space
            ORDER BY known.id DESC LIMIT {_MESSAGES}) AS recent);
    PERFORM hermes.archive_unused_terms(candidates, true);
END $$;

-- Delete some messages of a session, and with its last ones the session, and with the last session
-- of a person what is known of them; how many messages there were.
CREATE OR REPLACE FUNCTION hermes.archive_delete(wanted bigint, most integer) RETURNS integer
LANGUAGE plpgsql {TRUSTED} AS $$
DECLARE
    gone integer;
    doomed bigint[];
    chosen archive_sessions;
BEGIN
    PERFORM hermes.archive_check_scope();
    SELECT * INTO chosen FROM archive_sessions
    WHERE number = wanted AND namespace = {NAMESPACE} FOR UPDATE;
    IF chosen.number IS NULL THEN RETURN 0; END IF;
    SELECT array_agg(id) INTO doomed FROM (
        SELECT id FROM archive_messages WHERE id >= wanted << {SESSION_BITS}
        AND id < (wanted + 1) << {SESSION_BITS} ORDER BY id LIMIT most) AS first_ones;
    gone := coalesce(cardinality(doomed), 0);
    IF gone = 0 THEN
        DELETE FROM archive_sessions WHERE number = wanted;
        PERFORM hermes.archive_disown(chosen.owner);
        -- Those that continue it are without a parent now.
        UPDATE archive_sessions SET parent = '' WHERE namespace = {NAMESPACE} AND parent != ''
        AND md5(parent) IN (md5(chosen.id), md5(chosen.name))
        AND (parent = chosen.id OR parent = chosen.name AND user_id = chosen.user_id);
        DELETE FROM archive_imports
        WHERE namespace = {NAMESPACE} AND key = chosen.key AND session = chosen.id;
        RETURN 0;
    END IF;
    DELETE FROM archive_messages WHERE id = ANY (doomed);
    PERFORM hermes.archive_unindex(doomed);
    UPDATE archive_sessions SET messages = messages - gone WHERE number = wanted;
    RETURN gone;
END $$;

-- What no message and no session needs, of some words and of a person; it can be removed.
CREATE FUNCTION hermes.archive_unused(given text, the_user text, place text, clear boolean)
RETURNS TABLE (terms_there bigint, owners_there bigint) LANGUAGE plpgsql {TRUSTED} AS $$
DECLARE
    without integer[];
BEGIN
    PERFORM hermes.archive_check_scope();
    SELECT coalesce(array_agg(number), '{{}}') INTO without FROM archive_owners AS theirs
    WHERE namespace = {NAMESPACE} AND user_key = md5(the_user)::uuid AND user_id = the_user
      AND coalesce(platform = place, true)
      AND NOT EXISTS (SELECT 1 FROM archive_sessions WHERE owner = theirs.number);
    IF clear THEN
        PERFORM hermes.archive_disown(each) FROM unnest(without) AS each;
    END IF;
    RETURN QUERY SELECT hermes.archive_unused_terms(
        hermes.archive_hashes(given, hermes.archive_namespace()), clear),
        cardinality(without)::bigint;
END $$;

REVOKE EXECUTE ON FUNCTION hermes.archive_disown, hermes.archive_unused_terms FROM PUBLIC;
"""  # noqa: S608 - of our own constants
