"""What single checks find beyond their mutants, and what they leave in peace."""

from __future__ import annotations

import pytest
from support.kit import happened, only, states

from hermes_core.conformance import check_plugin

IN_INITIALIZE = """
def initialize(self, session_id, **kwargs):
    global SHARED
    SHARED = SHARED or {start}
    super().initialize(session_id, **kwargs)
"""
IN_A_TOOL = """
def handle_tool_call(self, tool_name, args, **kwargs):
    {does}
    return super().handle_tool_call(tool_name, args, **kwargs)
"""
SAVED_OUTSIDE = """
def save_config(self, values, home):
    open(os.path.expanduser("~/.acme"), "w").close()
"""
EDITS_LATER = """
def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
    self.later = messages
def shutdown(self):
    if getattr(self, "later", None):
        del self.later[2:]
    super().shutdown()
"""
ONE_SESSION = """
def prefetch(self, query, *, session_id=""):
    text = super().prefetch(query)
    return text if session_id == self._session else ""
"""
THREAD = """
import subprocess, sys, threading
SHARED = None
def begin():
    thread = threading.Thread(target=threading.Event().wait, name="shared", daemon=True)
    thread.start()
    return thread
"""


@pytest.mark.parametrize(
    ("number", "methods", "top", "said"),
    [
        ("HP307", "pass", "print('hello')", "it printed 5 characters while loading"),
        ("HP307", IN_A_TOOL.format(does="print('asked')"), "", "printed"),
        ("HP307", "def save_config(self, values, home): print('saved')", "", "first: saved"),
        ("HP308", "pass", "import os; os.environ['ACME_X'] = '1'", "the variable ACME_X"),
        ("HP309", IN_INITIALIZE.format(start="begin()"), THREAD, "shared"),
        ("HP310", IN_INITIALIZE.format(start="subprocess.Popen([sys.executable, '-S', '-c', "
                  "'import time; time.sleep(60)'])"), THREAD, "still running"),
        ("HP314", "pass", "import logging; logging.basicConfig(level=10, force=True)",
         "while loading: the level of the root logger was changed from WARNING to DEBUG; the hand"),
        ("HP314", IN_A_TOOL.format(does="logging.config.dictConfig({'version': 1})"),
         "import logging.config", "loggers of others were disabled"),
        ("HP314", IN_A_TOOL.format(does="logging.disable(50)"), "import logging",
         "logging.disable was called"),
        ("HP613", "def on_session_end(self, messages): messages[2]['content'] = ''", "",
         "after on_session_end, message 3 of 4 is different"),
        ("HP613", EDITS_LATER, "", "after sync_turn, the list has 2 messages"),
        ("HP707", ONE_SESSION, "", "a turn of session-2 is not recalled in session-2"),
        ("HP811", IN_A_TOOL.format(does="open(os.path.expanduser('~/.tool'), 'w').close()"), "",
         "~/.tool"),
        ("HP811", SAVED_OUTSIDE, "", "~/.acme"),
    ],
)  # fmt: skip
def test_a_fault_is_found_wherever_a_session_has_it(plugin, number, methods, top, said):
    # HP102 starts the first session: what all sessions share is there before the check.
    report = check_plugin(plugin(methods, top), only("HP102", number))
    assert said in happened(report, number)


def test_a_secret_is_found_in_temporary_files_too(plugin):
    info = plugin(
        """
        def get_config_schema(self):
            return [{"key": "token", "description": "The key", "secret": True}]

        def initialize(self, session_id, **kwargs):
            import tempfile
            with open(os.path.join(tempfile.gettempdir(), "acme.log"), "a") as log:
                log.write(str(kwargs["provider_config"]))
            super().initialize(session_id, **kwargs)
        """
    )
    assert "acme.log" in happened(check_plugin(info, only("HP405")), "HP405")


REMOTE = """
def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
    import socket
    {bug}
    try:
        socket.create_connection(("127.0.0.1", 9), timeout=0.1)
    except OSError:
        raise RuntimeError("the turn was not stored")
"""
WRITING = ("HP304", "HP601", "HP603", "HP604", "HP609", "HP701", "HP705", "HP821", "HP822")


def test_a_write_that_raises_because_the_kit_cut_it_off_is_no_fault(plugin):
    report = check_plugin(plugin(REMOTE.format(bug="")), only(*WRITING))
    assert set(states(report).values()) == {"skipped"}
    assert "--live" in report.results[0].reason


def test_a_bug_in_a_plugin_that_needs_the_network_is_a_fault(plugin):
    bug = "user_content.strip(1, 2)"
    top = "import socket\ntry: socket.create_connection(('127.0.0.1', 9))\nexcept OSError: pass"
    report = check_plugin(plugin(REMOTE.format(bug=bug), top), only("HP603"))
    assert "TypeError" in happened(report, "HP603")


def test_turns_that_are_stored_and_rank_low_are_not_called_lost(plugin):
    info = plugin("def _search(self, query, limit): return super()._search('called', 3)")
    assert states(check_plugin(info, only("HP821"))) == {"HP821": "passed"}


def test_what_a_queue_stores_later_is_bounded_too(plugin):
    info = plugin(
        """
        def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
            import threading
            store, text = self._store, f"{user_content} {assistant_content}"
            job = (text, "turn", self._owner, session_id)
            threading.Timer(0.2, store.add, job).start()

        def _search(self, query, limit):
            return [] if self._store is None else self._store.search(query, self._owner, limit)
        """
    )
    assert "characters after a turn" in happened(check_plugin(info, only("HP608")), "HP608")


def test_every_method_that_takes_no_more_keywords_is_named(plugin):
    info = plugin(
        """
        def handle_tool_call(self, tool_name, args): return "{}"
        def on_turn_start(self, turn_number, message): pass
        """
    )
    said = "no **kwargs: handle_tool_call(tool_name, args), on_turn_start(turn_number, message)"
    assert happened(check_plugin(info, only("HP306")), "HP306") == said


def test_a_number_that_is_none_is_no_json(plugin):
    info = plugin(
        "def handle_tool_call(self, tool_name, args, **kwargs): return '{\"score\": NaN}'"
    )
    assert "NaN" in happened(check_plugin(info, only("HP505")), "HP505")


def test_a_plugin_that_demands_a_user_is_told(plugin):
    info = plugin(
        """
        def initialize(self, session_id, **kwargs):
            super().initialize(session_id, **{**kwargs, "user_id": kwargs["user_id"]})
        """
    )
    assert "without user_id" in happened(check_plugin(info, only("HP206")), "HP206")


def test_a_plugin_may_log_to_its_own_logger(plugin):
    info = plugin(
        """
        def initialize(self, session_id, **kwargs):
            own = logging.getLogger("acme")
            own.setLevel(logging.DEBUG)
            own.addHandler(logging.NullHandler())
            own.propagate = False
            super().initialize(session_id, **kwargs)
        """,
        "import logging",
    )
    assert states(check_plugin(info, only("HP314"))) == {"HP314": "passed"}


@pytest.mark.parametrize("default", ["3.5", "'30'"])
def test_a_field_with_a_number_as_default_is_not_given_words(plugin, default):
    info = plugin(
        f"""
        def get_config_schema(self):
            return [{{"key": "timeout", "description": "Seconds", "default": {default}}}]
        def save_config(self, values, hermes_home):
            try:
                seconds = float(values["timeout"])
            except ValueError:
                seconds = float({default})
            super().save_config({{"timeout": seconds}}, hermes_home)
        """
    )
    assert states(check_plugin(info, only("HP404"))) == {"HP404": "passed"}


def test_settings_that_the_kit_makes_up_do_not_keep_later_checks_from_running(plugin):
    info = plugin(
        """
        def get_config_schema(self):
            return [
                {"key": "mode", "description": "Where it stores", "default": "embedded"},
                {"key": "token", "description": "The key", "secret": True},
            ]
        def is_available(self):
            try:
                text = open(os.path.join(os.environ["HERMES_HOME"], "acme", "config.json")).read()
            except OSError:
                return True
            return "embedded" in text
        """
    )
    report = check_plugin(info, only("HP404", "HP405", "HP605"))
    assert set(states(report).values()) == {"passed"}
