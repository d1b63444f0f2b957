"""Where ours differs from hermes-agent on purpose, and why.

The tests fail on a difference that is not here, and on one that is here and no longer there. What
a release has not at all needs no entry. The reasons are printed in docs/compatibility.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Difference(NamedTuple):
    """Why a scenario has another result than in hermes-agent; ``only`` in that release, if set."""

    reason: str
    only: str = ""


_OLD = Difference("old signatures get what they accept")
_SESSION = Difference("the current session id is filled in where the host passes none")
_BLANK = Difference("blank text counts as no text")
_AUTHOR = Difference("`turn_author` is newer than 0.20.1.2")
_PREVIOUS = Difference("`previous_content` is newer than 0.20.1.2")
_CHECKPOINT = Difference("durable checkpoints are newer than 0.20.1.2")
_JSON = Difference("the answer is always JSON text")
_KEPT = Difference("a provider whose tools can't be read is kept, without tools")
_WAITING = Difference("`waiting_writes` counts what stays in the outbox")
_LINK = Difference("a whole link, with `@session:`, is accepted as well")
_UNENDING = Difference("a fence that is never closed is shown at the end: nothing is lost")
_CONTEXT = Difference("0.19 does not pass context variables on", only="0.19")

DIFFERENCES: dict[str, Difference] = {
    # providers and their start
    "a_timeout_of_recall_must_be_positive": Difference(
        "`external_prefetch_timeout=0` is allowed: only what is ready at once is recalled"
    ),
    "the_builtin_comes_first_in_whatever_order_they_are_added": Difference(
        "the built-in is always the first"
    ),
    "a_provider_whose_schemas_raise_is_added": _KEPT,
    "schemas_that_are_no_list": _KEPT,
    "keywords_that_the_host_did_not_give": Difference(
        "`platform`, `agent_context`, `agent_identity` and `agent_workspace` have defaults"
    ),
    "turns_after_a_start_that_failed": Difference(
        "a provider whose `initialize` failed is not called, and its turns wait in the outbox"
    ),
    "initialize_without_keywords_in_its_signature": _OLD,
    # recall
    "recall_without_a_session_id": _SESSION,
    "no_recall_for_a_blank_question": _BLANK,
    "recall_of_a_provider_without_session_id": _OLD,
    "recall_sees_the_host_s_context_variables": _CONTEXT,
    "the_status_of_a_turn_without_recall": Difference(
        "a turn without recall has no status, not that of the turn before"
    ),
    "nothing_is_queued_for_a_blank_question": _BLANK,
    "queueing_of_a_provider_without_session_id": _OLD,
    # turns
    "a_turn_arrives": Difference("`messages=None` is passed where the host passes none"),
    "a_turn_without_a_session_id": _SESSION,
    "a_turn_with_blank_words_of_the_user": _BLANK,
    "a_turn_without_an_answer": Difference("a turn without an answer is not stored"),
    "a_skill_in_the_messages_of_a_turn": Difference(
        "in `messages`, too, a skill is what the user typed, without the skill's text"
    ),
    "a_provider_without_session_id_gets_the_turn": _OLD,
    "the_author_of_a_turn": _AUTHOR,
    "the_author_of_a_turn_for_a_provider_that_takes_none": _AUTHOR,
    "a_turn_that_fails_once": Difference("a turn that fails is kept and tried again"),
    "messages_that_the_host_changes_afterwards": Difference(
        "the provider gets a copy of the messages as they were at the call"
    ),
    "a_turn_sees_the_host_s_context_variables": _CONTEXT,
    "a_secret_in_a_turn": Difference("secrets are redacted before a provider gets a text"),
    # notes and delegations
    "the_entry_that_was_replaced": _PREVIOUS,
    "the_entry_that_was_removed": _PREVIOUS,
    "the_entries_behind_a_batch": _PREVIOUS,
    "metadata_that_can_not_be_built": Difference(
        "a note is passed on without metadata where `build_metadata` raises"
    ),
    "the_new_text_of_a_replaced_note": Difference("`new_text` counts as `content`"),
    "a_delegation_for_two_arguments": _OLD,
    # sessions
    "a_turn_begins_with_a_skill": Difference("of a skill, `message` is the user's instruction"),
    "a_turn_begins_for_two_arguments": _OLD,
    "the_end_of_a_session_comes_after_its_turns": Difference(
        "the end of a session waits for its turns, which it can overtake in hermes-agent"
    ),
    "a_change_for_one_argument": _OLD,
    "a_checkpoint_that_is_required": _CHECKPOINT,
    "evidence_for_a_checkpoint": _CHECKPOINT,
    "a_checkpoint_of_what_was_said": Difference(
        "providers of version 2 get the text of user and assistant only"
    ),
    "a_second_shutdown": Difference("providers are shut down once"),
    "the_state_before_a_shutdown": _WAITING,
    "the_state_after_a_shutdown": _WAITING,
    "the_state_after_a_shutdown_without_work": _WAITING,
    "the_state_after_a_shutdown_that_ran_out_of_time": Difference(
        "writes that were not delivered in time wait in the outbox"
    ),
    # tools
    "names_that_a_model_api_refuses": Difference(
        "a tool whose name model APIs refuse is left out with a warning"
    ),
    "schemas_that_a_model_api_refuses": Difference(
        "a tool whose schema is not a JSON object schema is left out with a warning"
    ),
    "a_wrong_part_of_a_schema": Difference("wrong parts of a schema are removed with a warning"),
    "tools_that_are_known_after_initialize": Difference(
        "tools that a provider knows only after `initialize` can be called"
    ),
    "tools_of_a_provider_that_raises_later": Difference(
        "tools that were read once stay when `get_tool_schemas` raises later"
    ),
    "a_tool_that_answers_with_a_dict": _JSON,
    "a_tool_that_answers_with_nothing": _JSON,
    "a_tool_that_answers_with_plain_text": _JSON,
    "a_tool_that_is_a_coroutine": Difference("coroutines are awaited"),
    "a_tool_s_method_without_keywords": _OLD,
    "tools_for_an_agent_that_has_disabled_them": Difference(
        "0.19 does not know `disabled_toolsets`", only="0.19"
    ),
    "toolsets_that_are_disabled": Difference("0.19 does not know `disabled_toolsets`", only="0.19"),
    # the fence
    "a_block_says_what_it_is": Difference("the note in the block has other words"),
    "a_fence_within_recalled_text_is_taken_out": Difference(
        "text that a provider fenced itself is kept, with the tags made harmless"
    ),
    "a_fence_that_never_ends": _UNENDING,
    "a_scrubber_after_its_flush": _UNENDING,
    # the provider's class
    "the_tools_of_the_least_provider": Difference(
        "the default answers with a JSON error instead of raising"
    ),
    # the tools of the model
    "an_entry_is_replaced_with_new_text": Difference("0.19 does not know `new_text`", only="0.19"),
    "new_text_for_an_added_entry": Difference("0.19 does not know `new_text`", only="0.19"),
    "a_batch_with_new_text": Difference("0.19 does not know `new_text`", only="0.19"),
    "a_change_without_old_text_lists_the_entries": Difference(
        "`usage` reads the same in every answer"
    ),
    "batches_that_are_not_right": Difference("a malformed batch is an error with `success`"),
    "a_secret_is_not_noted": Difference("a note with a secret is refused"),
    "a_note_about_a_key_s_folder": Difference("naming a file such as ~/.ssh/config is allowed"),
    "the_entry_behind_a_change_is_named": Difference(
        "`replaced_entry` and `removed_entry` are newer than 0.20.1.2"
    ),
    "the_newer_keys_of_a_search": Difference("0.19 has no `detail` and `link`", only="0.19"),
    "every_detail": Difference("0.19 has no `detail` and `link`", only="0.19"),
    "a_search_of_the_titles": Difference(
        "sessions that match a search less well follow those that match it"
    ),
    "a_session_by_its_link": _LINK,
    "a_session_by_the_link_of_a_result": _LINK,
    "questions_as_people_ask_them": Difference(
        "questions with punctuation or other word forms find their sessions"
    ),
}

#: Members whose signature differs from hermes-agent's in more than additional parameters.
SIGNATURES: dict[str, str] = {}

_TURN = ["a question", "an answer"]

#: What hermes-agent has only after 0.20.1.2. No release on PyPI shows it, so the results are here.
NEWER: dict[str, Any] = {
    "the_author_of_a_turn": [
        ["sync_turn", _TURN, {"turn_author": {"id": "u1", "name": "Ann", "is_bot": False}}]
    ],
    "the_author_of_a_turn_for_a_provider_that_takes_none": [_TURN],
    "the_entry_that_was_replaced": [
        ["replace", "memory", "new", {"old_text": "ol", "previous_content": "the old entry"}]
    ],
    "the_entry_that_was_removed": [
        ["remove", "memory", "", {"old_text": "ol", "previous_content": "the old entry"}]
    ],
    "the_entries_behind_a_batch": [
        ["remove", "memory", "", {"old_text": "stale", "previous_content": "a stale one"}],
        ["add", "memory", "new", {}],
        ["replace", "memory", "likes coffee", {"old_text": "tea", "previous_content": "likes tea"}],
    ],
    "the_new_text_of_a_replaced_note": [["replace", "memory", "new", {"old_text": "old"}]],
    "the_entry_behind_a_change_is_named": [["likes tea", None], [None, "likes rum"]],
    "a_checkpoint_that_is_required": "done",
    "who_makes_checkpoints": [True, False, False],
    "whether_an_agent_shows_the_tools": [True, False, True, False],
}
