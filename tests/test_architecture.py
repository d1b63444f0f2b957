"""The rules of docs/architecture.md: packages, who imports whom, and what no module does."""

from __future__ import annotations

import ast
import importlib
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("architecture")  # one process parses everything once

ROOT = Path(__file__).parents[1]
CORE = ROOT / "hermes_core"
INSPECTOR = ROOT / "hermes_inspector"

#: The packages and modules of hermes_core, lowest first: each imports only what stands before it.
LAYERS = (
    "errors", "provider", "session", "hookspecs", "storage", "dispatch", "privacy", "fence",
    "secrets", "call_log", "config", "discovery", "service", "outbox", "loading", "manager",
    "checkup", "backup", "install", "testing", "conformance", "cli",
)  # fmt: skip

#: What a process shares by its nature, or what must be one per process, with the reason.
SHARED_STATE = {
    "call_log/log.py: _WRITERS": "managers of one home write to one file with one thread",
    "config/environment.py: _CLAIMS": "a process has one environment",
    "config/environment.py: _LOCK": "a process has one environment",
    "dispatch/call.py: _NUMBERS": "no two writes of a process have one identity",
    "dispatch/caller.py: _HOMES": "a plugin's own thread has to find the home in use",
    "dispatch/caller.py: _INSTANCES": "a provider object is the same instance, whoever calls it",
    "dispatch/process_state.py: _STORING": "classes say which of their methods store turns",
    "dispatch/streams.py: _ROUTER": "a process has one standard output",
    "loading/modules.py: _FINDER": "a process has one list of import finders",
    "loading/pinned.py: _FINDER": "import finders belong to the process",
    "outbox/worker.py: _SHARED": "managers of one home deliver from one file with one worker",
    "privacy/error_text.py: _IN_USE": "a process has one environment, with these secrets in it",
    "storage/outages.py: _KNOWN": "a server can't be reached by the whole process",
    "storage/postgres/database.py: _DATABASES": "managers share connections; servers have few",
    "storage/forks.py: _FORK_HANDLERS": "handlers of forks can't be removed from a process",
    "storage/descriptors.py: DESCRIPTORS": "descriptors belong to the process",
    "storage/time_limit.py: _LIMIT": "protocols between a turn and its storage pass no deadline",
}

#: The same for our plugins.
PLUGINS_SHARED_STATE = {
    "builtin/hermes_builtin/sessions/location.py: _SHARED": "managers of one home share one file",
    "builtin/hermes_builtin/sessions/spool.py: _SPOOLS": "turns of one home wait in one queue",
    "builtin/hermes_builtin/sessions/words.py: _INDEX_WORDS": "a bounded cache of a pure function",
    "mem0/src/hermes_memory_mem0/sdk.py: _LOCK": "mem0ai's import reads the process's environment",
}

#: Who creates threads, and why. Everything else runs on a `Worker`, which has deadlines, survives
#: a fork and never blocks the exit of the process.
THREADS = {
    "hermes_adapters/people.py": "frameworks await what the memory does while it blocks",
    "hermes_core/conformance/_runner.py": "runs batches of checks, each in its own process",
    "hermes_core/conformance/checks/concurrency.py": "checks what a provider does under threads",
    "hermes_core/dispatch/worker.py": "has the class",
    "hermes_core/install/_commands.py": "reads both pipes of a command while it runs",
    "hermes_core/testing/stores.py": "checks what a store does under threads",
    "hermes_core/loading/compat/_agent.py": "hermes-agent's API returns a thread",
}

#: What is copied into somebody's project as it is, and modules that stand for hermes-agent's.
NOT_OURS = ("conformance/scaffold/project/",)
STANDS_FOR_THE_HOST = "loading/compat/"


@dataclass(frozen=True)
class Import:
    """One imported name, and whether only a type checker sees it."""

    module: str
    name: str
    line: int
    typing_only: bool

    @property
    def path(self) -> list[str]:
        return [*self.module.split("."), *filter(None, [self.name])]


def sources(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        if not any(part in path.as_posix() for part in NOT_OURS):
            yield path, parsed(path)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def imports(tree: ast.Module) -> tuple[Import, ...]:
    return tuple(_imports(tree))


def _imports(tree: ast.Module) -> Iterator[Import]:
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        hidden = id(node) in typing_only
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for name in node.names:
                yield Import(node.module, name.name, node.lineno, hidden)
        elif isinstance(node, ast.Import):
            for name in node.names:
                yield Import(name.name, "", node.lineno, hidden)


def unit(path: Path) -> str:
    """The top-level name of hermes_core to which a file belongs."""
    return path.relative_to(CORE).with_suffix("").parts[0]


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT).as_posix()}:{line}"


def test_hermes_core_has_these_names_and_no_more():
    found = {
        each.stem if each.is_file() else each.name
        for each in CORE.iterdir()
        if each.suffix == ".py" or (each / "__init__.py").is_file()
    }
    assert found == {*LAYERS, "__init__", "__main__"}
    assert len(LAYERS) <= 22, "beside __init__ and __main__, which are names of Python's"


def test_packages_import_only_what_stands_below_them():
    rank = {name: number for number, name in enumerate(LAYERS)}
    wrong = [
        f"{where(path, each.line)}: {unit(path)} -> {target}"
        for path, tree in sources(CORE)
        if unit(path) in rank and STANDS_FOR_THE_HOST not in path.as_posix()
        for each in imports(tree)
        if each.path[0] == "hermes_core" and len(each.path) > 1 and not each.typing_only
        for target in [each.path[1]]
        if rank.get(target, -1) > rank[unit(path)]
    ]
    assert wrong == []


def test_nothing_private_is_imported_from_another_package():
    wrong = [
        f"{where(path, each.line)}: {'.'.join(each.path)}"
        for folder in (CORE, ROOT / "plugins")
        for path, tree in sources(folder)
        for each in imports(tree)
        if _is_private_elsewhere(each, path)
    ]
    assert wrong == []


def _is_private_elsewhere(each: Import, path: Path) -> bool:
    if each.path[0] != "hermes_core":
        return False
    private = next((number for number, part in enumerate(each.path) if _is_private(part)), None)
    # The package that has the private module or name; a module's private names are its package's.
    return private is not None and not path.is_relative_to(_package(each.path[:private]))


def _package(path: list[str]) -> Path:
    folder = ROOT.joinpath(*path)
    return folder if folder.is_dir() else folder.parent


def test_hermes_core_imports_no_plugin():
    plugins = ("hermes_builtin", "hermes_memory_")
    wrong = [
        where(path, each.line)
        for path, tree in sources(CORE)
        for each in imports(tree)
        if each.module.startswith(plugins)
    ]
    assert wrong == []


@pytest.mark.parametrize("plugin", ["honcho", "mem0", "hindsight"])
def test_a_plugin_imports_public_names_only(plugin):
    public = {"hermes_core", "hermes_core.service", "hermes_core.conformance"}
    wrong = [
        f"{where(path, each.line)}: {each.module}"
        for path, tree in sources(ROOT / "plugins" / plugin / "src")
        for each in imports(tree)
        if each.module.startswith("hermes_") and each.module not in public
        if not each.module.startswith(f"hermes_memory_{plugin}")
    ]
    assert wrong == []


def test_an_adapter_imports_public_names_only():
    """Somebody else's adapter can do what ours do."""
    public = {"hermes_core", "hermes_builtin", "hermes_core.cli.output"}
    public.add("hermes_core.secrets")  # the key of `hermes-plugins chat`, which is a command
    wrong = [
        f"{where(path, each.line)}: {each.module}"
        for path, tree in sources(ROOT / "hermes_adapters")
        for each in imports(tree)
        if each.module.startswith(("hermes_core", "hermes_builtin")) and each.module not in public
    ]
    assert wrong == []


def test_nothing_imports_the_page():
    wrong = [
        where(path, each.line)
        for folder in (CORE, ROOT / "plugins", ROOT / "hermes_adapters")
        for path, tree in sources(folder)
        for each in imports(tree)
        if each.module.startswith("hermes_inspector")
    ]
    assert wrong == []


def test_the_page_imports_public_modules_and_no_database():
    """What it changes goes through the code of the commands, wherever the memory is stored."""
    forbidden = ("sqlite3", "psycopg", "hermes_core.storage.sqlite", "hermes_core.storage.postgres")
    wrong = [
        f"{where(path, each.line)}: {'.'.join(each.path)}"
        for path, tree in sources(INSPECTOR)
        for each in imports(tree)
        if each.module.startswith(forbidden)
        or (each.path[0].startswith("hermes_") and any(_is_private(part) for part in each.path))
        or (each.module.startswith("hermes_core.cli") and each.module != "hermes_core.cli.output")
        or "commands" in each.path
    ]
    assert wrong == []


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_only_the_command_and_the_web_modules_know_the_web():
    """What the pages show is plain data, which a terminal could show as well."""
    web = ("starlette", "jinja2", "uvicorn", "markupsafe")
    found = {
        path.stem
        for path, tree in sources(INSPECTOR)
        for each in imports(tree)
        if each.module.startswith(web)
    }
    assert found == {"app", "command", "pages"}


#: Everything that runs as ours: what is imported, and what a plugin of ours adds.
ALL_OURS = (CORE, ROOT / "plugins", ROOT / "hermes_adapters", INSPECTOR)

#: Who opens a SQLite file, and why.
OPENS_SQLITE = {
    "hermes_core/storage/sqlite_connection.py": "all other connections come from here",
    "hermes_core/storage/snapshot.py": "writes the copy of a database, which has no schema of ours",
    "plugins/builtin/hermes_builtin/portable_notes.py": "a file without a name, for what waits",
    "plugins/builtin/hermes_builtin/sessions/sqlite/maintenance.py": "cuts a damaged index out of "
    "the schema",
    "plugins/builtin/hermes_builtin/sessions/sqlite/repair.py": "copies a damaged file, which a "
    "connection of ours refuses",
    "plugins/mem0/src/hermes_memory_mem0/engine.py": "erases what was deleted from files of mem0ai "
    "and Qdrant",
}


def test_only_these_files_open_sqlite():
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ALL_OURS
        for path, tree in sources(folder)
        if opens_sqlite(tree)
    }
    assert found == set(OPENS_SQLITE)


@pytest.mark.parametrize(
    ("code", "opens"),
    [
        ("import sqlite3\nsqlite3.connect(path)", True),
        ("import sqlite3 as sql\nwork = partial(sql.connect, path)", True),
        ("from sqlite3 import connect", True),
        ("from sqlite3.dbapi2 import connect as opened", True),
        ("import sqlite3\nsqlite3.Connection(path)", True),
        ("from sqlite3 import Connection\nConnection(path)", True),
        ("from sqlite3 import Connection\ndef read(database: Connection): ...", False),
        (
            "import sqlite3, psycopg\ntry:\n    psycopg.connect(url)\nexcept sqlite3.Error: ...",
            False,
        ),
    ],
)
def test_a_file_that_opens_sqlite_is_found_however_it_is_written(code, opens):
    assert opens_sqlite(ast.parse(code)) == opens


def opens_sqlite(tree: ast.Module) -> bool:
    """Whether a module uses `sqlite3.connect`, or calls `sqlite3.Connection`, by any name."""
    modules, classes = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [each for each in node.names if each.name.split(".")[0] == "sqlite3"]
            modules |= {each.asname or "sqlite3" for each in names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sqlite3":
            if any(each.name == "connect" for each in node.names):
                return True
            classes |= {
                each.asname or each.name for each in node.names if each.name == "Connection"
            }
    used = {
        ast.unparse(node.func if isinstance(node, ast.Call) else node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        or (isinstance(node, ast.Attribute) and node.attr == "connect")
    }
    places = {f"{each}{part}" for each in modules for part in ("", ".dbapi2")}
    return not used.isdisjoint(
        classes | {f"{place}.{name}" for place in places for name in ("connect", "Connection")}
    )


#: Who asks a provider, or what may be one, for its members outside of dispatch, and why.
LOOKS_INTO_A_PROVIDER = {
    "hermes_core/loading/loader.py: hasattr(type(value), member)": "whether it is a provider",
    "hermes_core/loading/loader.py: hasattr(value, member)": "whether it is a provider",
    "hermes_core/install/_bridge_template.py: hasattr(type(value), each)": "whether it is a "
    "provider, in hermes-agent, where nothing of ours can be imported",
    "hermes_core/install/_bridge_template.py: hasattr(value, each)": "as above",
    "hermes_core/storage/child.py: getattr(value, each)": "encodes the fields of a NamedTuple",
}
#: What a provider is called in our code, without underscores before it.
PROVIDER_NAMES = {
    "active", "builtin", "candidate", "external", "instance", "memory_provider", "memoryprovider",
    "plugin", "provider", "providers", "single", "target", "value",
}  # fmt: skip
#: `value` and `target` may be anything; they count where a member of a provider may be asked for.
VAGUE = {"target", "value"}


def test_a_provider_is_looked_into_only_where_it_is_called():
    """What a provider may have is declared in provider.py; only dispatch asks whether it has it."""
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {ast.unparse(node)}"
        for folder in ALL_OURS
        for path, tree in sources(folder)
        if not path.is_relative_to(CORE) or unit(path) not in ("dispatch", "conformance")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and looks_into_a_provider(node, members_of_providers())
    }
    assert found == set(LOOKS_INTO_A_PROVIDER)


@pytest.mark.parametrize(
    ("code", "looks"),
    [
        ('getattr(provider, "probe", None)', True),
        ("hasattr(self._provider, name)", True),
        ('hasattr(type(self.external), "forget")', True),
        ("getattr(active.provider.__class__, name)", True),
        ('getattr(manager.providers[0], "probe")', True),
        ('getattr(thing, "on_session_end", None)', True),
        ('getattr(value, "status", None)', False),
        ("getattr(value, name)", True),
        ("getattr(module, name)", False),
    ],
)
def test_a_look_into_a_provider_is_found_however_it_is_written(code, looks):
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    assert looks_into_a_provider(call, members_of_providers()) == looks


def looks_into_a_provider(call: ast.Call, members: frozenset[str]) -> bool:
    if not isinstance(call.func, ast.Name) or call.func.id not in ("getattr", "hasattr"):
        return False
    who, member = ast.unparse(call.args[0]), call.args[1]
    who = re.sub(r"^type\((.*)\)$", r"\1", who).removesuffix(".__class__")
    who = re.sub(r"\[.*\]$", "", who).split(".")[-1].lstrip("_").lower()
    asked = member.value if isinstance(member, ast.Constant) else None
    if asked in members:
        return True
    return who in PROVIDER_NAMES and (who not in VAGUE or asked is None)


@cache
def members_of_providers() -> frozenset[str]:
    """The methods that are a provider's alone: nothing else has a member of such a name."""
    tree = parsed(CORE / "hookspecs.py")
    classes = (each for each in tree.body if isinstance(each, ast.ClassDef))
    hooks = next(each for each in classes if each.name == "MemoryHooks")
    names = {each.name for each in hooks.body if isinstance(each, ast.FunctionDef)}
    return frozenset(names - {"initialize", "shutdown"})


MUTABLE = re.compile(
    r"(\w+\.)*(WeakSet|WeakKeyDictionary|WeakValueDictionary|dict|list|set|defaultdict|deque"
    r"|Lock|RLock|local|OrderedDict|Counter|count|cycle|Event|Condition|Semaphore|Queue|SimpleQueue"
    r"|Shared\w+|_[A-Z]\w*)\("
)


def test_state_that_a_process_shares_is_on_a_short_list():
    assert _shared_state(CORE) == set(SHARED_STATE)


def test_state_that_plugins_share_is_on_a_short_list():
    assert _shared_state(ROOT / "plugins") == set(PLUGINS_SHARED_STATE)


@pytest.mark.parametrize(
    "folder", [ROOT / "hermes_adapters", INSPECTOR], ids=lambda each: each.name
)
def test_adapters_and_the_page_share_no_state(folder):
    assert _shared_state(folder) == set()


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("_SEEN = {}", ["_SEEN"]),
        ("_TABLE = {1: 2}", []),
        ("class Counter:\n    count = 0\ndef work():\n    Counter.count += 1", ["Counter.count"]),
        ("class A:\n    def work(self):\n        type(self).last = self", ["type(self).last"]),
        ("class A:\n    def work(self):\n        self.__class__.last = 1", ["self.__class__.last"]),
        ("class A:\n    @classmethod\n    def work(cls):\n        cls.seen[1] = 2", ["cls.seen"]),
        ("class A:\n    seen = []", ["A.seen"]),
        ("class A:\n    seen: Mapping[str, int] = {}", []),
        ("def work(one: A):\n    one.last = 1", []),
    ],
)
def test_state_that_a_process_shares_is_found_however_it_is_written(code, names):
    assert list(_shared(ast.parse(code))) == names


def _shared_state(folder: Path) -> set[str]:
    return {
        f"{path.relative_to(folder).as_posix()}: {name}"
        for path, tree in sources(folder)
        for name in _shared(tree)
    }


def _shared(tree: ast.Module) -> Iterator[str]:
    """The names of a module, and the attributes of classes, that are changed while it runs."""
    yield from (name for name, value in _assignments(tree) if _is_mutable(value))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (
                f"{node.name}.{name}" for name, value in _assignments(node) if _is_mutable(value)
            )
        yield from map(ast.unparse, filter(_is_of_a_class, _targets(node)))


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement assigns or deletes; of a subscript, what it is a part of."""
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    else:
        return
    for target in targets:
        for each in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            while isinstance(each, ast.Subscript):
                each = each.value  # noqa: PLW2901
            yield each


def _is_of_a_class(target: ast.expr) -> bool:
    """Whether it is an attribute of a class, which has a CapWords name."""
    of = r"(\w+\.)*_*[A-Z]\w*[a-z]\w*|cls|type\(.*\)|.*\.__class__"
    return (
        isinstance(target, ast.Attribute)
        and re.fullmatch(of, ast.unparse(target.value)) is not None
    )


def _assignments(scope: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for node in scope.body:
        if isinstance(node, ast.Assign):
            yield ast.unparse(node.targets[0]), node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            if isinstance(scope, ast.ClassDef) and "Mapping[" in ast.unparse(node.annotation):
                continue  # the default of a field, which nobody may change
            yield ast.unparse(node.target), node.value


def _is_mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys  # a filled one is a table
    if isinstance(value, ast.List):
        return not value.elts
    if not isinstance(value, ast.Call) or MUTABLE.match(ast.unparse(value)) is None:
        return False
    counts = ast.unparse(value).startswith(("count(", "cycle("))  # whatever they begin with
    return counts or not value.args


THREAD_CALLS = ("Thread", "Timer", "ThreadPoolExecutor", "to_thread", "run_in_executor")


def test_only_these_files_create_threads():
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in (CORE, ROOT / "plugins", ROOT / "hermes_adapters", INSPECTOR)
        for path, tree in sources(folder)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _called(node).endswith(THREAD_CALLS)
    }
    assert found == set(THREADS)


def _called(call: ast.Call) -> str:
    """The last part of the name of what is called; "" for a call of anything else."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def test_no_function_rebinds_a_name_of_its_module():
    wrong = [
        f"{where(path, node.lineno)}: {ast.unparse(node)}"
        for folder in (CORE, ROOT / "plugins")
        for path, tree in sources(folder)
        for node in ast.walk(tree)
        if isinstance(node, ast.Global)
    ]
    assert wrong == []


IMPORT_ALL = """
import os, pkgutil, sys, threading
import hermes_builtin, hermes_core
done = []
def audit(event, args):
    writes = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")
    if writes or event.startswith(("socket.", "subprocess.", "os.fork", "os.putenv", "os.mkdir")):
        done.append((event, *map(str, args[:2])))
# The clock, random numbers, files, processes: functions in C that ours call while it is imported.
OUTSIDE = {"posix", "nt", "time", "_socket", "_random", "_posixsubprocess", "_io"}
# click looks for a translation of the texts that are its own. Newer versions of Python take paths
# apart in C.
HARMLESS = {
    "fspath", "StringIO", "BytesIO", "stat", "_path_normpath", "_path_splitroot",
    "_path_splitroot_ex",
}  # fmt: skip
def profile(frame, event, function):
    if event != "c_call":
        return
    module = function.__module__ or type(function.__self__).__module__
    if module not in OUTSIDE | {"random"} or function.__name__ in HARMLESS:
        return
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        if frame.f_globals.get("__name__", "").startswith("hermes_"):
            done.append((f"{module}.{function.__name__}", frame.f_code.co_filename, frame.f_lineno))
            return
        frame = frame.f_back
environment, stdout, finders = dict(os.environ), sys.stdout, list(sys.meta_path)
names = [
    each.name
    for package in (hermes_core, hermes_builtin)
    for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if ".compat" not in each.name and ".scaffold.project" not in each.name
    and not each.name.endswith("__main__")
]
import asyncio, multiprocessing, subprocess, pytest  # what they do is theirs
sys.addaudithook(audit)
sys.dont_write_bytecode = True
sys.setprofile(profile)
for name in [*names, *sys.argv[1:]]:
    __import__(name)
sys.setprofile(None)
assert len(names) > 40, names
assert dict(os.environ) == environment
assert (sys.stdout, sys.meta_path) == (stdout, finders)
assert threading.active_count() == 1
assert done == [], done
"""


def test_importing_does_no_work():
    """No thread, no process, no file, no clock, and nothing of the interpreter changed."""
    done = imported()
    assert done.returncode == 0, done.stderr


def test_work_of_an_import_is_seen(tmp_path):
    work = ["os.urandom(8)", "uuid.uuid4()", "time.monotonic()", "random.random()", "os.getpid()"]
    lines = ["import os, random, time, uuid", *work, "open(os.devnull).close()"]
    (tmp_path / "hermes_busy.py").write_text("\n".join(lines))
    last = imported("hermes_busy", folder=tmp_path).stderr.splitlines()[-1]
    for number in range(2, len(lines) + 1):
        assert f"hermes_busy.py', {number})" in last


def imported(*more: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Import all modules of the wheel, and others, in a process of their own."""
    source = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n{IMPORT_ALL}" if folder else IMPORT_ALL
    )
    return subprocess.run(
        [sys.executable, "-P", "-c", source, *more],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


#: A file that is longer has two subjects.
MOST_LINES = 700
#: The exceptions, with their reasons.
LONG_FILES = {
    "plugins/builtin/hermes_builtin/sessions/postgres/schema.py": "every migration there was",
}


def test_files_are_of_bounded_length():
    long = {
        path.relative_to(ROOT).as_posix()
        for folder in (CORE, ROOT / "plugins", ROOT / "hermes_adapters", INSPECTOR)
        for path, _ in sources(folder)
        if len(path.read_text("utf-8").splitlines()) > MOST_LINES
    }
    assert long == set(LONG_FILES)


def test_functions_are_short():
    lengths = sorted(
        node.end_lineno - _first_line(node) + 1
        for folder in (CORE, ROOT / "plugins")
        for _, tree in sources(folder)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    )
    assert statistics.median(lengths) <= 6
    assert lengths[int(len(lengths) * 0.9)] < 20


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The first line after the docstring."""
    body = node.body
    if len(body) > 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        return body[1].lineno
    return body[0].lineno


# -- tests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["builtin", "outbox", "deliveries"])
def test_what_is_stored_is_tested_over_both_storages_or_a_reason_is_given(folder):
    """A module uses the fixture, or is marked as being about files, or PostgreSQL, by nature."""
    modules = sorted((ROOT / "tests" / folder).glob("test_*.py"))
    assert modules
    assert [each.name for each in modules if not _says_over_what(ast.parse(each.read_text()))] == []


def _says_over_what(module: ast.Module) -> bool:
    arguments = (each.arg for each in ast.walk(module) if isinstance(each, ast.arg))
    texts = (each.value for each in ast.walk(module) if isinstance(each, ast.Constant))
    return "both_storages" in {*arguments, *texts} or any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("files_only", "postgres_only")
        and any(isinstance(each, ast.Constant) and each.value for each in call.args)
        for statement in module.body
        if isinstance(statement, ast.Assign)
        for call in ast.walk(statement)
    )


#: What Python has on POSIX only; a test module that needs it when it is imported can't be collected
#: on Windows.
POSIX_MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
POSIX_NAMES = {
    "os": {
        "WNOHANG", "WUNTRACED", "chown", "chroot", "fchown", "fork", "forkpty", "getegid",
        "geteuid", "getgid", "getloadavg", "getpgid", "getuid", "killpg", "lchown", "mkfifo",
        "openpty", "posix_spawn", "register_at_fork", "setgid", "setsid", "setuid", "statvfs",
        "sysconf", "uname",
    },
    "signal": {
        "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP",
        "SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGXFSZ", "alarm", "setitimer",
    },
    "socket": {"AF_UNIX"},
    "time": {"tzset"},
}  # fmt: skip


def test_tests_can_be_collected_on_windows():
    wrong = [
        f"{where(path, line)}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, name in _posix_at_import(parsed(path))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import resource", ["resource"]),
        ("from fcntl import flock", ["fcntl"]),
        ("KILLED = -signal.SIGKILL", ["signal.SIGKILL"]),
        ("@skipif(os.getuid() == 0)\ndef test(): ...", ["os.getuid"]),
        ("class Test:\n    user = os.geteuid()", ["os.geteuid"]),
        ("def test(signal=signal.SIGHUP): ...", ["signal.SIGHUP"]),
        ("def test():\n    import resource\n    os.getuid()", []),
        ("WORK = [lambda: os.fork()]", []),
        ("MAKE = os.mkfifo if hasattr(os, 'mkfifo') else Path.mkdir", []),
        ("if os.name == 'posix':\n    import resource", []),
    ],
)
def test_what_windows_lacks_is_found_in_a_module_of_tests(code, names):
    assert [name for _, name in _posix_at_import(ast.parse(code))] == names


def _posix_at_import(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in _run_at_import(tree):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names if each.name in POSIX_MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module in POSIX_MODULES else []
        elif isinstance(node, ast.Attribute):
            is_posix = node.attr in POSIX_NAMES.get(ast.unparse(node.value), ())
            names = [ast.unparse(node)] if is_posix else []
        else:
            continue
        yield from ((node.lineno, name) for name in names)


def _run_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """The parts of a module that run when it is imported on Windows: no bodies of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            for each in [*node.decorator_list, *defaults]:
                yield from (each, *_run_at_import(each))
        elif isinstance(node, ast.If | ast.IfExp) and _asks_for_posix(node.test):
            continue
        elif not isinstance(node, ast.Lambda):
            yield from (node, *_run_at_import(node))


def _asks_for_posix(test: ast.expr) -> bool:
    return any(word in ast.unparse(test) for word in ("hasattr(os,", "os.name", "sys.platform"))


def test_every_name_that_a_benchmark_imports_is_there():
    """They run by hand only, so nothing else would notice that a module was renamed."""
    wrong = []
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            if node.module.partition(".")[0] not in ("hermes_core", "hermes_builtin"):
                continue
            module = importlib.import_module(node.module)
            names = [f"{node.module}.{each.name}" for each in node.names]
            wrong += [
                f"{path.name}:{node.lineno}: {name}"
                for name in names
                if not hasattr(module, name.rpartition(".")[2]) and find_spec(name) is None
            ]
    assert wrong == []
