"""Whom the functions of the archive in PostgreSQL serve: the scope of the caller.

They look at all rows, whatever the policies say. So each of them compares the scope of its
transaction with what it returns or writes.
"""

from __future__ import annotations

from typing import Final

from hermes_core.storage.postgres import NAMESPACE

#: Runs with the rights of the owner of the tables, and with nobody else's functions.
TRUSTED: Final = "SECURITY DEFINER SET search_path = hermes, pg_temp"

# A scope that names none of its keys includes nothing: it is that of a transaction about something
# else, such as the notes of a person.
CHECKED: Final = f"""
CREATE FUNCTION hermes.archive_includes(
    scope jsonb, the_user text, the_chat text, the_profile text, place text
) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(
        scope ?| ARRAY['user_id', 'chat_id', 'profile', 'platform']
        AND (NOT scope ? 'user_id' OR the_user = scope ->> 'user_id')
        AND (NOT scope ? 'chat_id' OR the_chat = scope ->> 'chat_id')
        AND (NOT scope ? 'profile' OR the_profile = scope ->> 'profile')
        AND (NOT scope ? 'platform' OR place = scope ->> 'platform'), false)
$$;

CREATE OR REPLACE FUNCTION hermes.archive_visible() RETURNS integer[]
LANGUAGE plpgsql STABLE {TRUSTED} AS $$
DECLARE
    given text := current_setting('hermes.scope', true);
    scope jsonb;
    found integer[];
BEGIN
    IF given = '{{}}' THEN RETURN NULL; END IF;
    IF coalesce(given, '') = '' THEN RETURN '{{}}'; END IF;
    scope := given::jsonb;
    IF scope ? 'user_id' THEN
        SELECT array_agg(number) INTO found FROM archive_owners
        WHERE namespace = {NAMESPACE} AND user_key = md5(scope ->> 'user_id')::uuid
          AND hermes.archive_includes(scope, user_id, chat_id, profile, platform);
    ELSE
        SELECT array_agg(number) INTO found FROM archive_owners
        WHERE namespace = {NAMESPACE}
          AND hermes.archive_includes(scope, user_id, chat_id, profile, platform);
    END IF;
    RETURN coalesce(found, '{{}}');
END $$;

-- The vocabulary is for whoever sees any conversation.
CREATE OR REPLACE FUNCTION hermes.archive_counts(wanted text[])
RETURNS TABLE (term text, count integer) LANGUAGE sql STABLE {TRUSTED} AS $$
    SELECT term, count FROM archive_terms
    WHERE namespace = hermes.archive_namespace() AND term = ANY (wanted COLLATE "C")
    AND (SELECT cardinality(hermes.archive_visible()) IS DISTINCT FROM 0)
$$;

CREATE OR REPLACE FUNCTION hermes.archive_beginning(beginning text, most integer)
RETURNS TABLE (term text, count integer) LANGUAGE sql STABLE {TRUSTED} AS $$
    SELECT term, count FROM archive_terms WHERE namespace = hermes.archive_namespace()
    AND term >= beginning COLLATE "C" AND term < (beginning || U&'\\+10FFFF') COLLATE "C"
    AND (SELECT cardinality(hermes.archive_visible()) IS DISTINCT FROM 0)
    ORDER BY term LIMIT most
$$;
"""

#: Whether whoever calls a function acts for a person. It sees all rows, so policies don't help.
_FOR_PERSON: Final = "before NOT IN ('', '{}')"
NOT_OF_ALL: Final = f"""IF {_FOR_PERSON} THEN
        RAISE 'the scope of this transaction does not include everybody' USING ERRCODE = '42501';
    END IF;"""
NOT_OF_OTHERS: Final = f"""IF {_FOR_PERSON} AND NOT hermes.archive_includes(
        before::jsonb, facts ->> 'user_id', facts ->> 'chat_id', facts ->> 'profile',
        facts ->> 'place')
    THEN
        RAISE 'the scope of this transaction does not include this conversation'
            USING ERRCODE = '42501';
    END IF;"""

#: As with the conversations: without a scope, nothing is seen.
FOR_ALL: Final = "(SELECT current_setting('hermes.scope', true)) = '{}'"
