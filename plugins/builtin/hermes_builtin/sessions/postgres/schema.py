"""The archive's tables in PostgreSQL, who may see which rows, and the functions that write.

Messages have the same numbers as in SQLite. The index is a column of words that we prepare, with a
GIN index. A condition on it can't use that index below row-level security, since its operator is
not marked as leakproof. So the index, the words and the owners are private tables; functions of
their owner look into them, with the same rules as the policies.

The index has numbers instead of words: 64 bits of a hash of the word and of the number of its
namespace. They take half the space, and a search reads the lists of its own namespace only,
whatever words it asks for. Each message has one number more, for its owner, so that a search for
a person reads the lists of that person. The words themselves are in the table of terms.
"""

from __future__ import annotations

from typing import Final

from hermes_builtin.sessions.numbers import MOST_MESSAGES, SESSION_BITS
from hermes_builtin.sessions.postgres.damage import DAMAGE
from hermes_builtin.sessions.postgres.scopes import (
    CHECKED,
    FOR_ALL,
    NOT_OF_ALL,
    NOT_OF_OTHERS,
    TRUSTED,
)
from hermes_builtin.sessions.postgres.unused import UNUSED
from hermes_builtin.sessions.postgres.word_counts import SINGLE_WORDS, WORD_COUNTS
from hermes_core.storage.postgres import (
    FOR_NOBODY,
    NAMESPACE,
    Component,
    policy_changed,
    protect_table,
)

# -- tables -------------------------------------------------------------------------------------
#
# ``key`` and ``name_key`` are hashes of texts of any length, which an index could not hold.
# ``owner`` is one number for platform, user, chat and profile: what a `Scope` is about.

_TABLES: Final = """
CREATE TABLE hermes.archive_namespaces (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text NOT NULL UNIQUE
);
CREATE TABLE hermes.archive_owners (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text NOT NULL,
    key uuid NOT NULL,
    user_key uuid NOT NULL,
    user_id text NOT NULL,
    chat_id text NOT NULL,
    profile text NOT NULL,
    platform text NOT NULL,
    UNIQUE (namespace, key)
);
CREATE INDEX archive_owners_user ON hermes.archive_owners (namespace, user_key);
CREATE TABLE hermes.archive_sessions (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text NOT NULL,
    owner integer NOT NULL,
    key uuid NOT NULL,
    name_key uuid,
    id text NOT NULL,
    source text NOT NULL,
    user_id text NOT NULL,
    chat_id text NOT NULL,
    profile text NOT NULL,
    title text NOT NULL,
    parent text NOT NULL,
    started double precision NOT NULL,
    ended double precision,
    active double precision NOT NULL,
    messages integer NOT NULL,
    next integer NOT NULL,
    indexed integer NOT NULL DEFAULT 0,
    platform text NOT NULL,
    name text NOT NULL,
    UNIQUE (namespace, key)
) WITH (fillfactor = 70);
CREATE INDEX archive_sessions_name ON hermes.archive_sessions (namespace, name_key)
    WHERE name_key IS NOT NULL;
CREATE INDEX archive_sessions_active ON hermes.archive_sessions (namespace, active);
CREATE INDEX archive_sessions_parent ON hermes.archive_sessions (namespace, md5(parent))
    WHERE parent != '';
CREATE INDEX archive_sessions_owner ON hermes.archive_sessions (owner, active);
CREATE INDEX archive_sessions_titled ON hermes.archive_sessions (namespace) WHERE title != '';
-- Sessions whose last messages are not in the index yet.
CREATE INDEX archive_sessions_pending ON hermes.archive_sessions (namespace, number)
    WHERE indexed < next;
CREATE TABLE hermes.archive_messages (
    id bigint PRIMARY KEY,
    owner integer NOT NULL,
    size integer NOT NULL,
    at double precision NOT NULL,
    namespace text NOT NULL,
    content text NOT NULL,
    extra text
);
CREATE TABLE hermes.archive_words (
    id bigint PRIMARY KEY,
    namespace integer NOT NULL,
    owner integer NOT NULL,
    words bigint[] NOT NULL
);
-- New entries wait in a list that each search reads; a short one keeps both it and the turn that
-- has to sort it into the index fast.
CREATE INDEX archive_words_index ON hermes.archive_words USING gin (words)
    WITH (gin_pending_list_limit = 512);
CREATE TABLE hermes.archive_terms (
    namespace integer NOT NULL,
    term text COLLATE "C" NOT NULL,
    count integer NOT NULL,
    PRIMARY KEY (namespace, term)
);
-- Which words were forgotten with a message, of which only the numbers are known.
CREATE INDEX archive_terms_hash
    ON hermes.archive_terms (namespace, hashtextextended(term, namespace));
-- Turns that were stored, by what their writer calls them: one that is handed over again, because
-- nobody could tell whether it was stored, is not stored twice.
CREATE TABLE hermes.archive_turns (
    namespace text NOT NULL,
    key uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    ids bigint[] NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX archive_turns_at ON hermes.archive_turns (at);
CREATE TABLE hermes.archive_imports (
    namespace text NOT NULL,
    key uuid NOT NULL,
    origin text NOT NULL,
    session text NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY (namespace, key, origin)
);
CREATE TABLE hermes.archive_meta (
    namespace text NOT NULL,
    key text NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (namespace, key)
);
"""

# -- who sees what ------------------------------------------------------------------------------

_WRITES: Final = f"LANGUAGE plpgsql {TRUSTED}"
#: Such a function looks at all sessions of the namespace, since an id may be taken by somebody
#: else's. It gives the transaction its scope back, as an error does. (A plain user may not create a
#: function with ``SET hermes.scope``.)
_LOOKS_AT_ALL: Final = """
    before text := coalesce(current_setting('hermes.scope', true), '');
    everybody text := set_config('hermes.scope', '{}', true);"""
_AS_BEFORE: Final = "PERFORM set_config('hermes.scope', before, true);"

_SCOPES: Final = f"""
CREATE FUNCTION hermes.archive_namespace() RETURNS integer LANGUAGE sql STABLE {TRUSTED} AS $$
    SELECT number FROM archive_namespaces WHERE namespace = {NAMESPACE}
$$;
-- Words, with blanks between them, as the numbers of the index.
CREATE FUNCTION hermes.archive_hashes(words text, space integer) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(array_agg(hashtextextended(word COLLATE "C", space)), '{{}}')
    FROM unnest(string_to_array(words, ' ')) AS word
$$;
-- The owners that the scope of this transaction includes; NULL for everybody, none without one.
CREATE FUNCTION hermes.archive_visible() RETURNS integer[] LANGUAGE plpgsql STABLE {TRUSTED} AS $$
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
        WHERE namespace = {NAMESPACE}
          AND user_key = md5(scope ->> 'user_id')::uuid AND user_id = scope ->> 'user_id'
          AND coalesce(chat_id = scope ->> 'chat_id', true)
          AND coalesce(profile = scope ->> 'profile', true)
          AND coalesce(platform = scope ->> 'platform', true);
    ELSE
        SELECT array_agg(number) INTO found FROM archive_owners
        WHERE namespace = {NAMESPACE}
          AND coalesce(chat_id = scope ->> 'chat_id', true)
          AND coalesce(profile = scope ->> 'profile', true)
          AND coalesce(platform = scope ->> 'platform', true);
    END IF;
    RETURN coalesce(found, '{{}}');
END $$;
"""

_IN_SCOPE: Final = (
    "(SELECT current_setting('hermes.scope', true)) = '{}'"
    " OR owner = ANY ((SELECT hermes.archive_visible())::integer[])"
)

# -- writing ------------------------------------------------------------------------------------

#: What a turn changes in the row of its session.
_ADDED: Final = """
        next = next + amount, messages = messages + amount, active = greatest(active, latest),
        ended = CASE WHEN ended < latest THEN NULL ELSE ended END,
        title = CASE WHEN title = '' THEN facts ->> 'title' ELSE title END"""


def _copying(create: str = "CREATE", check: str = "") -> str:
    """The functions that copy a storage and repair it, with a check of who may call them."""
    # The check sees the scope of the caller in ``before``.
    return f"""
-- Store a session as another storage has it, and more of its messages at their places.
{create} FUNCTION hermes.archive_restore(
    facts jsonb, begun double precision, finished double precision, latest double precision,
    places integer[], roles integer[], times double precision[], sizes integer[],
    contents text[], extras text[]
) RETURNS void {_WRITES} AS $$
DECLARE{_LOOKS_AT_ALL}
    found archive_sessions;
    stored integer;
BEGIN
    {check}
    IF EXISTS (SELECT 1 FROM unnest(places) AS place
               WHERE place IS NULL OR place NOT BETWEEN 0 AND {MOST_MESSAGES - 1}) THEN
        RAISE 'a conversation can have {MOST_MESSAGES:,} messages' USING ERRCODE = '54000';
    END IF;
    SELECT * INTO found FROM archive_sessions
    WHERE namespace = {NAMESPACE} AND key = md5(facts ->> 'id')::uuid FOR UPDATE;
    IF found.number IS NULL THEN
        INSERT INTO archive_sessions (
            namespace, owner, key, name_key, id, source, user_id, chat_id, profile, title, parent,
            started, ended, active, messages, next, platform, name
        ) VALUES (
            {NAMESPACE}, hermes.archive_owner(
                facts ->> 'user_id', facts ->> 'chat_id', facts ->> 'profile', facts ->> 'place'),
            md5(facts ->> 'id')::uuid,
            CASE WHEN facts ->> 'name' != '' THEN md5(facts ->> 'name')::uuid END, facts ->> 'id',
            facts ->> 'source', facts ->> 'user_id', facts ->> 'chat_id', facts ->> 'profile',
            '', '', begun, finished, latest, 0, 0, facts ->> 'platform', facts ->> 'name'
        ) RETURNING * INTO found;
    END IF;
    INSERT INTO archive_messages (id, owner, size, at, namespace, content, extra)
    SELECT (found.number << {SESSION_BITS}) | (place << 2) | (role & 3),
           found.owner, size, at, found.namespace, content, extra
    FROM unnest(places, roles, sizes, times, contents, extras)
        AS given (place, role, size, at, content, extra)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS stored = ROW_COUNT;
    UPDATE archive_sessions SET title = facts ->> 'title', parent = facts ->> 'parent',
        started = begun, ended = finished, active = latest, messages = messages + stored,
        next = greatest(next, (SELECT max(place) + 1 FROM unnest(places) AS place))
    WHERE number = found.number;
    {_AS_BEFORE}
END $$;

-- Count the messages of each session again, where the count is wrong.
{create} FUNCTION hermes.archive_recount() RETURNS void {_WRITES} AS $$
DECLARE{_LOOKS_AT_ALL}
BEGIN
    {check}
    UPDATE archive_sessions AS session SET messages = there, next = greatest(next,
        ((last & {(1 << SESSION_BITS) - 1}) >> 2)::integer + 1)
    FROM (SELECT id >> {SESSION_BITS} AS number, count(*) AS there, max(id) AS last
          FROM archive_messages WHERE namespace = {NAMESPACE} GROUP BY 1) AS counted
    WHERE session.number = counted.number AND session.namespace = {NAMESPACE}
      AND messages != there;
    {_AS_BEFORE}
END $$;

"""


_FUNCTIONS: Final = f"""
CREATE FUNCTION hermes.archive_begin() RETURNS integer {_WRITES} AS $$
BEGIN
    INSERT INTO archive_namespaces (namespace) VALUES ({NAMESPACE}) ON CONFLICT DO NOTHING;
    RETURN hermes.archive_namespace();
END $$;

CREATE FUNCTION hermes.archive_owner(
    the_user text, the_chat text, the_profile text, place text
) RETURNS integer {_WRITES} AS $$
DECLARE
    wanted uuid := md5(jsonb_build_array(the_user, the_chat, the_profile, place)::text)::uuid;
    found integer;
BEGIN
    SELECT number INTO found FROM archive_owners WHERE namespace = {NAMESPACE} AND key = wanted;
    IF found IS NULL THEN
        INSERT INTO archive_owners (namespace, key, user_key, user_id, chat_id, profile, platform)
        VALUES ({NAMESPACE}, wanted, md5(the_user)::uuid, the_user, the_chat, the_profile, place)
        ON CONFLICT DO NOTHING;
        SELECT number INTO found FROM archive_owners
        WHERE namespace = {NAMESPACE} AND key = wanted;
    END IF;
    RETURN found;
END $$;

-- The session that a turn belongs to, created if it is new, and locked. Two people may give their
-- sessions the same name: the first keeps it as the id, the other's id gets a hash of the owner.
CREATE FUNCTION hermes.archive_session(facts jsonb, owned integer)
RETURNS hermes.archive_sessions {_WRITES} AS $$
DECLARE
    found archive_sessions;
    wanted text := facts ->> 'id';
    called text := facts ->> 'name';
    tried integer := 0;
    is_taken boolean;
BEGIN
    LOOP
        SELECT * INTO found FROM archive_sessions
        WHERE namespace = {NAMESPACE} AND key = md5(wanted)::uuid FOR UPDATE;
        IF found.owner = owned AND found.id = wanted AND (tried = 0 OR found.name = called) THEN
            RETURN found;
        END IF;
        is_taken := found.number IS NOT NULL;
        IF tried = 0 THEN
            SELECT * INTO found FROM archive_sessions
            WHERE namespace = {NAMESPACE} AND name_key = md5(wanted)::uuid
              AND name = wanted AND owner = owned ORDER BY number LIMIT 1 FOR UPDATE;
            IF found.number IS NOT NULL THEN RETURN found; END IF;
        END IF;
        IF is_taken THEN
            called := coalesce(nullif(called, ''), wanted);
            wanted := (facts ->> 'other_id') || CASE WHEN tried = 0 THEN '' ELSE '-' || tried END;
            tried := tried + 1;
            CONTINUE;
        END IF;
        INSERT INTO archive_sessions (
            namespace, owner, key, name_key, id, source, user_id, chat_id, profile, title, parent,
            started, ended, active, messages, next, platform, name
        ) VALUES (
            {NAMESPACE}, owned, md5(wanted)::uuid,
            CASE WHEN called != '' THEN md5(called)::uuid END, wanted,
            facts ->> 'source', facts ->> 'user_id', facts ->> 'chat_id', facts ->> 'profile',
            facts ->> 'title', facts ->> 'parent', (facts ->> 'started')::double precision,
            (facts ->> 'ended')::double precision, (facts ->> 'started')::double precision,
            0, 0, facts ->> 'platform', called
        ) ON CONFLICT DO NOTHING RETURNING * INTO found;
        IF found.number IS NOT NULL THEN RETURN found; END IF;
    END LOOP;
END $$;

-- Words and how many sampled messages have them. In one statement and in order, so that two
-- writers wait for each other and never both.
CREATE FUNCTION hermes.archive_count(terms text[], counts integer[]) RETURNS void {_WRITES} AS $$
DECLARE
    space integer := hermes.archive_namespace();
BEGIN
    INSERT INTO archive_terms AS known
    SELECT space, term, amount FROM unnest(terms, counts) AS given (term, amount)
    WHERE amount > 0 OR NOT EXISTS (
        SELECT 1 FROM archive_terms WHERE namespace = space
        AND archive_terms.term = given.term COLLATE "C")
    ORDER BY term COLLATE "C"
    ON CONFLICT (namespace, term) DO UPDATE SET count = known.count + excluded.count;
END $$;

{_copying()}
-- For what concerns the conversations of all people: refuse it to whoever acts for one of them.
CREATE FUNCTION hermes.archive_check_scope() RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF current_setting('hermes.scope', true) IS DISTINCT FROM '{{}}' THEN
        RAISE 'the scope of this transaction does not include everybody' USING ERRCODE = '42501';
    END IF;
END $$;

-- Delete some messages of a session, and with its last ones the session; how many there were.
CREATE FUNCTION hermes.archive_delete(wanted bigint, most integer) RETURNS integer {_WRITES} AS $$
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

-- Take messages out of the index, and words out of the vocabulary that nobody uses now.
CREATE FUNCTION hermes.archive_unindex(doomed bigint[]) RETURNS void {_WRITES}
SET enable_seqscan = off AS $$
DECLARE
    space integer := hermes.archive_namespace();
    candidates bigint[];
    word text;
BEGIN
    PERFORM hermes.archive_check_scope();
    WITH gone AS (
        DELETE FROM archive_words WHERE id = ANY (doomed) AND namespace = space RETURNING words)
    SELECT array_agg(DISTINCT each) INTO candidates FROM gone, unnest(words) AS each;
    -- A word that several sampled messages have is in others as well.
    FOR word IN
        SELECT term FROM archive_terms WHERE namespace = space AND count <= 64
        AND hashtextextended(term, namespace) = ANY (candidates)
    LOOP
        IF NOT EXISTS (
            SELECT 1 FROM archive_words WHERE words && hermes.archive_hashes(word, space))
        THEN
            DELETE FROM archive_terms WHERE namespace = space AND term = word;
        END IF;
    END LOOP;
END $$;

-- Messages that are not in the index yet, and whether there are more.
CREATE FUNCTION hermes.archive_pending(most integer)
RETURNS TABLE (id bigint, content text, extra text) LANGUAGE sql STABLE {TRUSTED} AS $$
    SELECT hermes.archive_check_scope();
    SELECT message.id, message.content, message.extra
    FROM (SELECT number, indexed FROM archive_sessions
          WHERE namespace = {NAMESPACE} AND indexed < next ORDER BY number LIMIT most) AS session
    CROSS JOIN LATERAL (
        SELECT archive_messages.id, archive_messages.content, archive_messages.extra
        FROM archive_messages
        WHERE archive_messages.id >= (session.number << {SESSION_BITS}) | (session.indexed << 2)
          AND archive_messages.id < (session.number + 1) << {SESSION_BITS}
        ORDER BY archive_messages.id LIMIT most) AS message
    ORDER BY message.id LIMIT most
$$;

-- Put messages into the index, and note for each session how far it is indexed. Whoever calls it
-- holds a lock, so that two don't do the same; writers go on meanwhile.
CREATE FUNCTION hermes.archive_index(ids bigint[], words text[], terms text[], counts integer[])
RETURNS void {_WRITES} AS $$
DECLARE
    space integer := coalesce(hermes.archive_namespace(), hermes.archive_begin());
BEGIN
    PERFORM hermes.archive_check_scope();
    INSERT INTO archive_words AS known (id, namespace, owner, words)
    SELECT archive_messages.id, space, archive_messages.owner,
           hermes.archive_hashes(given.text, space)
           || hashint8extended(archive_messages.owner, space)
    FROM unnest(ids, words) AS given (id, text) JOIN archive_messages USING (id)
    WHERE archive_messages.namespace = {NAMESPACE}
    ON CONFLICT (id) DO UPDATE SET words = excluded.words, owner = excluded.owner
    WHERE known.namespace = space;
    PERFORM hermes.archive_count(terms, counts);
    UPDATE archive_sessions SET indexed = greatest(indexed, place + 1)
    FROM (SELECT each >> {SESSION_BITS} AS session,
                 max((each & {(1 << SESSION_BITS) - 1}) >> 2)::integer AS place
          FROM unnest(ids) AS each GROUP BY 1) AS done
    WHERE number = session AND namespace = {NAMESPACE};
END $$;

CREATE FUNCTION hermes.archive_forget_index() RETURNS void {_WRITES} AS $$
BEGIN
    PERFORM hermes.archive_check_scope();
    DELETE FROM archive_terms WHERE namespace = hermes.archive_namespace();
    DELETE FROM archive_words AS known WHERE namespace = hermes.archive_namespace()
    AND NOT EXISTS (SELECT 1 FROM archive_messages WHERE archive_messages.id = known.id);
END $$;
"""

# -- looking words up ---------------------------------------------------------------------------

#: A person with more chats than this is recognised by the rows alone, not by the index.
_FEW_OWNERS: Final = 64
#: Which rows of the index may be returned, as a condition.
_VISIBLE: Final = "(visible IS NULL OR owner = ANY (visible))"

_LOOKUPS: Final = f"""
-- The vocabulary is that of the namespace, whatever the scope: looking for a message of a person
-- for each of thousands of words that begin alike takes longer than the search.
CREATE FUNCTION hermes.archive_counts(wanted text[]) RETURNS TABLE (term text, count integer)
LANGUAGE sql STABLE {TRUSTED} AS $$
    SELECT term, count FROM archive_terms
    WHERE namespace = hermes.archive_namespace() AND term = ANY (wanted COLLATE "C")
$$;

CREATE FUNCTION hermes.archive_beginning(beginning text, most integer)
RETURNS TABLE (term text, count integer) LANGUAGE sql STABLE {TRUSTED} AS $$
    SELECT term, count FROM archive_terms WHERE namespace = hermes.archive_namespace()
    AND term >= beginning COLLATE "C" AND term < (beginning || U&'\\+10FFFF') COLLATE "C"
    ORDER BY term LIMIT most
$$;

-- A condition for messages that have a word of each group, none of some words, and one of the
-- roles; and that the scope of this transaction includes.
CREATE FUNCTION hermes.archive_condition(groups text[], without text, roles integer[])
RETURNS text LANGUAGE plpgsql STABLE {TRUSTED} AS $$
DECLARE
    space integer := hermes.archive_namespace();
    visible integer[] := hermes.archive_visible();
    condition text := format('namespace = %L', space);
    words text;
BEGIN
    FOREACH words IN ARRAY groups LOOP
        condition := condition
            || format(' AND words && %L::bigint[]', hermes.archive_hashes(words, space));
    END LOOP;
    IF without != '' THEN
        condition := condition
            || format(' AND NOT words && %L::bigint[]', hermes.archive_hashes(without, space));
    END IF;
    IF cardinality(roles) > 0 THEN
        condition := condition || format(' AND (id & 3) = ANY (%L::bigint[])', roles);
    END IF;
    IF visible IS NOT NULL THEN
        condition := condition || format(' AND owner = ANY (%L::integer[])', visible);
        IF cardinality(visible) <= {_FEW_OWNERS} THEN
            condition := condition || format(' AND words && %L::bigint[]',
                ARRAY(SELECT hashint8extended(each, space) FROM unnest(visible) AS each));
        END IF;
    END IF;
    RETURN condition;
END $$;

CREATE FUNCTION hermes.archive_find(
    groups text[], without text, roles integer[], most integer, below bigint
) RETURNS SETOF bigint LANGUAGE plpgsql STABLE {TRUSTED}
-- Only the index of words: the planner knows too little of words to choose.
SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off SET jit = off
AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT id FROM archive_words WHERE %s%s ORDER BY id DESC LIMIT %L',
        hermes.archive_condition(groups, without, roles),
        CASE WHEN below IS NOT NULL THEN format(' AND id < %L', below) ELSE '' END,
        most);
END $$;

CREATE FUNCTION hermes.archive_find_sessions(groups text[], without text, roles integer[])
RETURNS SETOF bigint LANGUAGE plpgsql STABLE {TRUSTED} SET jit = off AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT DISTINCT id >> {SESSION_BITS} FROM archive_words WHERE %s',
        hermes.archive_condition(groups, without, roles));
END $$;

-- For each group the messages of some sessions: a few ranges of the primary key, not the index.
CREATE FUNCTION hermes.archive_within(
    groups text[], sessions bigint[], without text, roles integer[], most integer
) RETURNS TABLE (at bigint, id bigint) LANGUAGE plpgsql STABLE {TRUSTED}
SET enable_bitmapscan = off SET enable_seqscan = off SET jit = off AS $$
DECLARE
    space integer := hermes.archive_namespace();
    visible integer[] := hermes.archive_visible();
    none_of bigint[] := hermes.archive_hashes(without, space);
BEGIN
    RETURN QUERY
    SELECT wanted.at, found.id
    FROM unnest(groups) WITH ORDINALITY AS wanted (text, at)
    CROSS JOIN LATERAL (SELECT hermes.archive_hashes(wanted.text, space) AS any_of) AS split
    CROSS JOIN unnest(sessions) AS session
    CROSS JOIN LATERAL (
        SELECT archive_words.id FROM archive_words
        WHERE archive_words.id >= session << {SESSION_BITS}
          AND archive_words.id < (session + 1) << {SESSION_BITS}
          AND namespace = space AND {_VISIBLE}
          AND words && any_of AND NOT words && none_of
          AND (cardinality(roles) = 0 OR (archive_words.id & 3) = ANY (roles))
        ORDER BY archive_words.id LIMIT most
    ) AS found;
END $$;

-- Those messages that can't be found by all of their words, for `check`.
CREATE FUNCTION hermes.archive_missing(wanted bigint[], texts text[]) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE {TRUSTED} AS $$
DECLARE
    space integer := hermes.archive_namespace();
    visible integer[] := hermes.archive_visible();
BEGIN
    RETURN QUERY SELECT given.id FROM unnest(wanted, texts) AS given (id, text)
    WHERE NOT EXISTS (
        SELECT 1 FROM archive_words
        WHERE archive_words.id = given.id AND namespace = space AND {_VISIBLE}
          AND words @> hermes.archive_hashes(given.text, space));
END $$;
"""

#: They trust whoever calls them, so only the functions above may.
_INTERNAL: Final = """
REVOKE EXECUTE ON FUNCTION hermes.archive_owner, hermes.archive_session, hermes.archive_count
FROM PUBLIC;
"""

#: Messages that another machine has deleted: see hermes_builtin/sync.
_REMOVAL: Final = f"""
-- Delete some messages of a session, and with the last of all the session.
CREATE FUNCTION hermes.archive_remove(wanted bigint, numbers bigint[]) RETURNS void {_WRITES} AS $$
DECLARE
    doomed bigint[];
    gone integer;
BEGIN
    PERFORM hermes.archive_check_scope();
    -- An agent that stores a turn waits for this row.
    PERFORM 1 FROM archive_sessions
    WHERE number = wanted AND namespace = {NAMESPACE} FOR UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    SELECT coalesce(array_agg(id), '{{}}') INTO doomed FROM archive_messages
    WHERE id = ANY (numbers) AND id >= wanted << {SESSION_BITS}
    AND id < (wanted + 1) << {SESSION_BITS};
    gone := cardinality(doomed);
    DELETE FROM archive_messages WHERE id = ANY (doomed);
    PERFORM hermes.archive_unindex(doomed);
    UPDATE archive_sessions SET messages = messages - gone WHERE number = wanted;
    IF NOT EXISTS (SELECT 1 FROM archive_messages WHERE id >= wanted << {SESSION_BITS}
        AND id < (wanted + 1) << {SESSION_BITS}) THEN
        PERFORM hermes.archive_delete(wanted, 1);
    END IF;
END $$;
"""

#: Before format 3 there were databases with either form of this function.
_ONE_APPEND: Final = """
DROP FUNCTION IF EXISTS hermes.archive_append(
    uuid, jsonb, integer[], double precision[], integer[], text[], text[], double precision);
"""


def _appending(check: str = "") -> str:
    """The function that stores a turn, with a check of who may call it."""
    return f"""
-- Store messages, all or none, and begin the session if it is new; returns their numbers. A turn
-- whose key is known violates the primary key of the turns, and nothing of it is stored. The
-- messages are one value: a client takes longer to write an array than JSON. Not jsonb, whose texts
-- have a limit of 256 MB.
CREATE OR REPLACE FUNCTION hermes.archive_append(
    turn uuid, facts jsonb, said json, latest double precision
) RETURNS bigint[] {_WRITES} AS $$
DECLARE{_LOOKS_AT_ALL}
    amount integer := json_array_length(said);
    found archive_sessions;
    stored bigint[];
BEGIN
    {check}
    -- The usual case in one step: a session that is there, and whose it is. From now on its row is
    -- locked, so that nobody else gives messages the same numbers.
    UPDATE archive_sessions AS session SET {_ADDED}
    FROM archive_owners AS theirs
    WHERE session.namespace = {NAMESPACE} AND session.key = (facts ->> 'key')::uuid
      AND session.id = facts ->> 'id' AND theirs.number = session.owner
      AND theirs.user_id = facts ->> 'user_id' AND theirs.chat_id = facts ->> 'chat_id'
      AND theirs.profile = facts ->> 'profile' AND theirs.platform = facts ->> 'place'
    RETURNING session.* INTO found;
    IF found.number IS NULL THEN
        IF facts ->> 'started' IS NULL THEN
            facts := facts || jsonb_build_object('started', coalesce(said -> 0 ->> 'at', '0'));
        END IF;
        found := hermes.archive_session(facts, hermes.archive_owner(
            facts ->> 'user_id', facts ->> 'chat_id', facts ->> 'profile', facts ->> 'place'));
        UPDATE archive_sessions AS session SET {_ADDED}
        WHERE session.number = found.number RETURNING session.* INTO found;
    END IF;
    IF found.next > {MOST_MESSAGES} THEN
        RAISE 'a conversation can have {MOST_MESSAGES:,} messages, and this one is full'
            USING ERRCODE = '54000';
    END IF;
    WITH inserted AS (
        INSERT INTO archive_messages (id, owner, size, at, namespace, content, extra)
        -- No role may reach into the bits of the session.
        SELECT (found.number << {SESSION_BITS}) | ((found.next - amount + place - 1) << 2)
               | (role & 3), found.owner, size, at, found.namespace, content, extra
        FROM ROWS FROM (json_to_recordset(said) AS (
            role integer, size integer, at double precision, content text, extra text))
            WITH ORDINALITY AS given (role, size, at, content, extra, place)
        RETURNING id)
    INSERT INTO archive_turns (namespace, key, ids)
    SELECT found.namespace, turn, coalesce(array_agg(id ORDER BY id), '{{}}') FROM inserted
    RETURNING ids INTO stored;
    {_AS_BEFORE}
    RETURN stored;
END $$;
"""


COMPONENT: Final = Component(
    "archive",
    (
        _TABLES
        + _SCOPES
        + _FUNCTIONS
        + _LOOKUPS
        + _INTERNAL
        + protect_table("archive_sessions", _IN_SCOPE)
        + protect_table("archive_messages", _IN_SCOPE)
        + protect_table("archive_turns", FOR_NOBODY)
        + protect_table("archive_imports", FOR_NOBODY)
        + protect_table("archive_meta", FOR_NOBODY),
        _REMOVAL,
        _ONE_APPEND + _appending(),
        CHECKED
        + DAMAGE
        + _copying("CREATE OR REPLACE", NOT_OF_ALL)
        + _appending(NOT_OF_OTHERS)
        + policy_changed("archive_turns", FOR_ALL)
        + policy_changed("archive_imports", FOR_ALL)
        + policy_changed("archive_meta", FOR_ALL),
        UNUSED,
        WORD_COUNTS,
        SINGLE_WORDS,
    ),
    private=("archive_namespaces", "archive_owners", "archive_words", "archive_terms"),
    internal=(
        "archive_owner",
        "archive_session",
        "archive_count",
        "archive_disown",
        "archive_unused_terms",
    ),
    # Numbers are unique in the database, not in a namespace: whoever could choose one could take
    # that of somebody else's next message. So only the functions give them.
    grants={
        "archive_sessions": "SELECT, UPDATE (ended, title)",
        "archive_messages": "SELECT, UPDATE (content, size, extra)",
    },
)
