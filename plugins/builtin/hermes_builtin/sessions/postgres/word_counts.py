"""How often words occur in a namespace, and the table of its words when the index is built again.

A word weighs the same for every person of a namespace: its rarity among all messages there. These
functions return such numbers, and nothing of the messages. Each word is counted alone: with counts
of several words together, or of one without another, a person could find out which words stand in
the same message of somebody else.
"""

from __future__ import annotations

from typing import Final

from hermes_builtin.sessions.numbers import SESSION_BITS
from hermes_builtin.sessions.postgres.scopes import TRUSTED
from hermes_core.storage.postgres import NAMESPACE

#: For a person with more chats than this, it is not worth knowing whether there are others.
_FEW_OWNERS: Final = 64

WORD_COUNTS: Final = f"""
-- How many messages and sessions the namespace has, for whoever sees any conversation of it. It
-- gives the transaction its scope back, as an error does.
CREATE FUNCTION hermes.archive_totals() RETURNS TABLE (messages bigint, sessions bigint)
LANGUAGE plpgsql {TRUSTED} AS $$
DECLARE
    before text := coalesce(current_setting('hermes.scope', true), '');
BEGIN
    IF cardinality(hermes.archive_visible()) = 0 THEN
        RETURN QUERY SELECT 0::bigint, 0::bigint;
        RETURN;
    END IF;
    PERFORM set_config('hermes.scope', '{{}}', true);
    RETURN QUERY SELECT coalesce(sum(each.messages), 0)::bigint, count(*)
    FROM archive_sessions AS each WHERE each.namespace = {NAMESPACE};
    PERFORM set_config('hermes.scope', before, true);
END $$;

-- For each group of words: how many messages and sessions of the namespace have one of them. Until
-- so many messages were counted in all; then NULL. No rows, if the scope includes all of them: then
-- a search finds what there is to count.
CREATE FUNCTION hermes.archive_spread(groups text[], without text, roles integer[], most integer)
RETURNS TABLE (messages integer, sessions integer) LANGUAGE plpgsql STABLE {TRUSTED}
SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off SET jit = off
AS $$
DECLARE
    space integer := hermes.archive_namespace();
    visible integer[] := hermes.archive_visible();
    condition text := format('namespace = %L', space);
    remaining integer := most;
    words text;
BEGIN
    IF cardinality(visible) = 0 THEN RETURN; END IF;
    IF cardinality(visible) <= {_FEW_OWNERS} AND NOT EXISTS (
        SELECT 1 FROM archive_owners WHERE archive_owners.namespace = {NAMESPACE}
        AND number != ALL (visible))
    THEN
        RETURN;
    END IF;
    IF without != '' THEN
        condition := condition
            || format(' AND NOT words && %L::bigint[]', hermes.archive_hashes(without, space));
    END IF;
    IF cardinality(roles) > 0 THEN
        condition := condition || format(' AND (id & 3) = ANY (%L::bigint[])', roles);
    END IF;
    FOREACH words IN ARRAY groups LOOP
        messages := NULL;
        sessions := NULL;
        IF remaining >= 0 THEN
            EXECUTE format(
                'SELECT count(*)::integer, count(DISTINCT id >> {SESSION_BITS})::integer FROM'
                ' (SELECT id FROM archive_words WHERE %s AND words && %L::bigint[] LIMIT %L)'
                ' AS found',
                condition, hermes.archive_hashes(words, space), remaining + 1)
            INTO messages, sessions;
            remaining := remaining - messages;
            IF remaining < 0 THEN
                messages := NULL;
                sessions := NULL;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Forget words of messages that are not there. The table of words stays: a prefix is looked up
-- there while the index is built again, and afterwards if that was interrupted.
CREATE OR REPLACE FUNCTION hermes.archive_forget_index() RETURNS void
LANGUAGE plpgsql {TRUSTED} AS $$
BEGIN
    PERFORM hermes.archive_check_scope();
    DELETE FROM archive_words AS known WHERE namespace = hermes.archive_namespace()
    AND NOT EXISTS (SELECT 1 FROM archive_messages WHERE archive_messages.id = known.id);
END $$;

-- In about how many messages words are, whatever was counted before. In order, like archive_count.
CREATE FUNCTION hermes.archive_set_counts(terms text[], counts integer[]) RETURNS void
LANGUAGE plpgsql {TRUSTED} AS $$
BEGIN
    PERFORM hermes.archive_check_scope();
    INSERT INTO archive_terms AS known
    SELECT hermes.archive_namespace(), term, amount
    FROM unnest(terms, counts) AS given (term, amount) ORDER BY term COLLATE "C"
    ON CONFLICT (namespace, term) DO UPDATE SET count = excluded.count;
END $$;

-- The words of the table that follow one, in order.
CREATE FUNCTION hermes.archive_terms_after(last text, most integer) RETURNS SETOF text
LANGUAGE plpgsql STABLE {TRUSTED} AS $$
BEGIN
    PERFORM hermes.archive_check_scope();
    RETURN QUERY SELECT term FROM archive_terms
    WHERE namespace = hermes.archive_namespace() AND term > last COLLATE "C"
    ORDER BY term LIMIT most;
END $$;

-- Take those of some words out of the table that no message has.
CREATE FUNCTION hermes.archive_drop_unused(terms text[]) RETURNS void
LANGUAGE plpgsql {TRUSTED} SET enable_seqscan = off AS $$
DECLARE
    space integer := hermes.archive_namespace();
    word text;
BEGIN
    PERFORM hermes.archive_check_scope();
    FOREACH word IN ARRAY terms LOOP
        IF NOT EXISTS (
            SELECT 1 FROM archive_words WHERE words && hermes.archive_hashes(word, space))
        THEN
            DELETE FROM archive_terms WHERE namespace = space AND term = word;
        END IF;
    END LOOP;
END $$;
"""  # noqa: S608

#: Before format 7 a person could ask for words together, and for words without others.
SINGLE_WORDS: Final = f"""
DROP FUNCTION hermes.archive_spread(text[], text, integer[], integer);

-- For each word alone: how many messages and sessions of the namespace have it. Until so many
-- messages were counted, a message once for each of its words; then NULL. No rows, if the scope
-- includes all of them: then a search finds what there is to count.
CREATE FUNCTION hermes.archive_spread(wanted text[], most integer)
RETURNS TABLE (messages integer, sessions integer) LANGUAGE plpgsql STABLE {TRUSTED}
SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off SET jit = off
AS $$
DECLARE
    space integer := hermes.archive_namespace();
    visible integer[] := hermes.archive_visible();
    remaining integer := most;
    word text;
BEGIN
    IF cardinality(visible) = 0 THEN RETURN; END IF;
    IF cardinality(visible) <= {_FEW_OWNERS} AND NOT EXISTS (
        SELECT 1 FROM archive_owners WHERE archive_owners.namespace = {NAMESPACE}
        AND number != ALL (visible))
    THEN
        RETURN;
    END IF;
    FOREACH word IN ARRAY wanted LOOP
        messages := NULL;
        sessions := NULL;
        IF remaining >= 0 THEN
            SELECT count(*)::integer, count(DISTINCT found.id >> {SESSION_BITS})::integer
            INTO messages, sessions
            FROM (SELECT id FROM archive_words WHERE namespace = space
                  AND words && ARRAY[hashtextextended(word COLLATE "C", space)]
                  LIMIT remaining + 1) AS found;
            remaining := remaining - messages;
            IF remaining < 0 THEN
                messages := NULL;
                sessions := NULL;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
"""  # noqa: S608
