"""Drives the public memory plugins for hermes-agent, each in an environment of its own.

``run.py [--light] [--only NAME]``: installs each package of packages.json beside our wheel, with
the Python that the row names, cuts the network, and goes through list, info, enable, a conversation
over two processes, tools, shutdown and the conformance kit. Results are in results.json, from which
`page.py` makes a part of docs/compatibility.md and `index.py` hermes_core/install/plugins.json.
Our own plugins (rows with ``project``) talk to the test server that ``server`` names, on loopback.
Fails if a package does less than it did when results.json was written.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PathDistribution, distributions
from pathlib import Path
from typing import Any
from zipfile import Path as ZipPath

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.hindsight_server import HindsightServer
from support.honcho_server import HonchoServer
from support.mem0_servers import Mem0Server

from hermes_core.conformance import Report, Result, grade_of
from hermes_core.conformance.model import FAILED, NEEDS_NETWORK, PASSED, SKIPPED

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
CACHE = Path(os.environ.get("HERMES_COMPAT_DIR", ROOT / ".compat"))
RESULTS = HERE / "results.json"

#: How long each step may take in all; the plugins' own deadlines are far below.
SECONDS = 180
#: More than the kit allows itself. CI has less time: what is late there counts as not checked.
CHECK_SECONDS = 330
LIGHT_CHECK_SECONDS = 90


def main() -> int:
    """Run what was asked for; 1 if something got worse."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--light", action="store_true", help="only those that install quickly")
    parser.add_argument(
        "--only", metavar="NAME", action="append", help="only this distribution; repeatable"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many at the same time")
    parser.add_argument("--write", action="store_true", help="write results, page and index")
    options = parser.parse_args()
    packages = json.loads((HERE / "packages.json").read_text("utf-8"))
    if options.only:  # in the given order
        named = {each["distribution"]: each for each in packages}
        packages = [named[name] for name in options.only]
    packages = [each for each in packages if not options.light or each["weight"] == "light"]
    wheel = _wheel(ROOT)
    limit = LIGHT_CHECK_SECONDS if options.light else CHECK_SECONDS

    known = {each["distribution"]: each for each in _known()}
    if not options.only:  # those that took longest begin first
        packages.sort(key=lambda each: -known.get(each["distribution"], {}).get("seconds", 0.0))
    lock = threading.Lock()

    def examined(package: dict[str, Any]) -> dict[str, Any]:
        result = _examined(package, wheel, limit)
        print(_line(result), flush=True)
        if options.write:
            # At once: a run of all packages takes long, and may be interrupted.
            with lock:
                _write({each["distribution"]: each for each in (*_known(), result)})
        return result

    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(examined, packages))
    worse = [line for each in results for line in _worse(known.get(each["distribution"]), each)]
    for line in worse:
        print(f"worse than before: {line}", file=sys.stderr)
    return 1 if worse else 0


def _write(results: dict[str, dict[str, Any]]) -> None:
    """Write the results, and what is made from them."""
    ordered = [results[name] for name in sorted(results)]
    text = json.dumps(ordered, indent=1, sort_keys=True, ensure_ascii=False)
    RESULTS.write_text(f"{text}\n", "utf-8")
    for script in ("page.py", "index.py"):
        subprocess.run([sys.executable, HERE / script], check=True)


def _known() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else []


def _worse(before: dict[str, Any] | None, now: dict[str, Any]) -> list[str]:
    """What a package did once and does no more."""
    if before is None:
        return []
    name = now["distribution"]
    goods = ("installs", "listed", "enables", "loads", "initialises", "stores", "recalls")
    lost = [each for each in goods if before.get(each) and not now.get(each)]
    lines = [f"{name}: {each}" for each in lost]
    if before["listing"] != now["listing"]:
        lines.append(f"{name}: listed as {now['listing']}, was {before['listing']}")
    return lines


def _line(result: dict[str, Any]) -> str:
    done = ("installs", "listed", "enables", "loads", "initialises", "stores", "recalls")
    marks = " ".join(each if result.get(each) else f"({each})" for each in done)
    return f"{result['distribution']:34} {marks}  {result['seconds']:.0f} s  {result['problem']}"


#: Removed when the program ends.
_WHEELS = tempfile.TemporaryDirectory(prefix="hermes-wheels-", ignore_cleanup_errors=True)
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def _wheel(project: Path) -> Path:
    """A project of this tree as a wheel."""
    folder = Path(_WHEELS.name, project.name)
    subprocess.run([*_PIP, "wheel", "--no-deps", "--wheel-dir", folder, project], check=True)
    return next(folder.glob("*.whl"))


def _python(version: str | None) -> str:
    """The Python that a package needs: of this process, or the one of that version."""
    if version is None:
        return sys.executable
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    found = [*map(str, pyenv), shutil.which(f"python{version}")]
    return next((each for each in found if each), sys.executable)


def _is_published(name: str) -> bool:
    """Whether the package index has a distribution."""
    command = [*_PIP, "index", "versions", name]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _metadata(package: dict[str, Any]) -> dict[str, str]:
    """What the metadata of a wheel says that can't be installed here: summary and provider."""
    wanted = f"{package['distribution']}=={package['version']}"
    with tempfile.TemporaryDirectory() as folder:
        options = ("--no-deps", "--ignore-requires-python", "--only-binary", ":all:")
        command = [*_PIP, "download", *options, "--dest", folder, wanted]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return {}
        wheel = next(Path(folder).glob("*.whl"))
        found = PathDistribution(
            ZipPath(wheel, f"{'-'.join(wheel.name.split('-')[:2])}.dist-info/")
        )
        groups = ("hermes_agent.memory_providers", "hermes_agent.plugins")
        points = [each.name for group in groups for each in found.entry_points.select(group=group)]
        summary = {"summary": found.metadata["Summary"] or ""}
        return summary | ({"name": points[0]} if points else {})


@contextmanager
def _server(kind: str) -> Iterator[dict[str, str]]:
    """A test server on loopback; yields the variables by which a plugin finds it."""
    match kind:
        case "honcho":
            honcho = HonchoServer().start()
            try:
                yield {"HONCHO_BASE_URL": honcho.url}
            finally:
                honcho.stop()
        case "mem0":
            with Mem0Server() as mem0:
                yield {"MEM0_HOST": mem0.url}
        case "hindsight":
            with HindsightServer() as hindsight:
                yield {"HINDSIGHT_MODE": "local_external", "HINDSIGHT_API_URL": hindsight.url}
        case _:
            yield {}


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _examined(package: dict[str, Any], wheel: Path, limit: float) -> dict[str, Any]:
    began = time.monotonic()
    machine = Machine(package, limit)
    result: dict[str, Any] = {**package, "problem": "", "tried": _today()}
    for each in ("environment", "project"):
        result.pop(each, None)
    if "project" in package:
        result |= {"made_for": "hermes-plugins", "published": _is_published(machine.name)}
    if "left_out" in package:  # for example, too large to be installed for a test
        problem = f"not tried: {result.pop('left_out')}"
        return {**result, **_metadata(package), "listing": [], "problem": problem, "seconds": 0.0}
    try:
        machine.install(wheel)
    except subprocess.CalledProcessError as error:
        why = error.stderr.decode().strip().splitlines()[-1:] or ["no reason"]
        result |= {"installs": False, "listing": [], "problem": f"can't be installed: {why[0]}"}
        return {**result, **_metadata(package), "seconds": round(time.monotonic() - began, 1)}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        _server(package.get("server", "")) as settings,
    ):
        machine.settings |= settings
        result |= machine.drive(Path(folder))
    if not (result.get("described") or {}).get("description"):
        result["summary"] = machine.summary()
    return {**result, "installs": True, "seconds": round(time.monotonic() - began, 1)}


class Machine:
    """One package in an environment of its own, with a user and a home of its own."""

    def __init__(self, package: dict[str, Any], limit: float) -> None:
        self.package = package
        self.name: str = package["distribution"]
        self._check_seconds = limit
        self.settings: dict[str, str] = {}
        self.venv = CACHE / package["distribution"]
        self.python = self.venv / ("Scripts" if os.name == "nt" else "bin") / "python"

    def install(self, wheel: Path) -> None:
        """Install the package, unless it is there, and our wheel."""
        wanted = f"{self.name}=={self.package['version']}"
        mark = self.venv / ".installed"
        if "project" in self.package:
            wanted = str(_wheel(ROOT / self.package["project"]))
            mark.unlink(missing_ok=True)  # the wheel of this moment
        if not mark.exists() or mark.read_text() != wanted:
            shutil.rmtree(self.venv, ignore_errors=True)  # perhaps of another Python
            python = _python(self.package.get("python"))
            subprocess.run([python, "-m", "venv", self.venv], check=True)
            self._pip(wanted, wheel)
            mark.write_text(wanted)
        self._pip("--force-reinstall", "--no-deps", wheel)

    def _pip(self, *what: str | Path) -> None:
        pip = [self.python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *what], check=True, capture_output=True)

    def summary(self) -> str:
        """What the package says of itself, for one whose plugin says nothing."""
        sites = [*self.venv.glob("lib/python*/site-packages"), self.venv / "Lib" / "site-packages"]
        found = distributions(name=self.name, path=[str(each) for each in sites])
        return next((each.metadata["Summary"] or "" for each in found), "")

    def drive(self, folder: Path) -> dict[str, Any]:
        """All steps, in a folder that is thrown away."""
        self.user, self.home = folder / "user", folder / "home"
        (folder / "work").mkdir(parents=True)
        self.user.mkdir()
        self.home.mkdir()
        rows, imported = self._listing()
        mine = [each for each in rows if each["distribution"] == self.package["distribution"]]
        loadable = [each for each in mine if each["state"] not in ("no-provider", "broken")]
        loadable = loadable or [each for each in mine if "not valid YAML" in each["problem"]]
        found: dict[str, Any] = {
            "listing": [[each["name"], each["state"], each["problem"]] for each in mine],
            "listed": bool(mine) and not imported,
            "imported_by_list": imported,
        }
        if not loadable:
            found["problem"] = mine[0]["problem"] if mine else _NOT_FOUND
            return found
        name = loadable[0]["name"]
        found |= self._enabled(name)
        found |= self._talked()
        found |= self._checked(name)
        found["described"] = self._described(name)
        found["writes_outside"] = self._outside()
        found["files_in_home"] = self._own_files()
        return found

    def _listing(self) -> tuple[list[dict[str, Any]], list[str]]:
        """What `list --all` says, and which of the package's modules it imported for it."""
        rows = json.loads(self.command("list", "--all", "--json").stdout)["providers"]
        code = (
            "import sys, json; from hermes_core import discover\n"
            "discover(everything=True); print(json.dumps(sorted(sys.modules)))"
        )
        modules = json.loads(self.run(self.python, "-P", "-c", code).stdout)
        tops = {each.partition(".")[0] for each in modules}
        return rows, sorted(tops & self._own_modules())

    @lru_cache(maxsize=1)  # noqa: B019 - a machine lives as long as the program
    def _own_modules(self) -> set[str]:
        code = (
            "import sys, json, importlib.metadata as m\n"
            "print(json.dumps([str(f) for f in m.files(sys.argv[1]) or []]))"
        )
        files = json.loads(
            self.run(self.python, "-P", "-c", code, self.package["distribution"]).stdout
        )
        tops = {each.partition("/")[0] for each in files if each.endswith(".py")}
        return {each.removesuffix(".py") for each in tops}

    def _enabled(self, name: str) -> dict[str, Any]:
        """What `info` and `enable` say; what is missing is made up, so that one can go on."""
        info = self.command("info", name)
        began = time.monotonic()
        enabled = self.command("enable", name)
        seconds = time.monotonic() - began
        works = enabled.returncode == 0
        found: dict[str, Any] = {
            "info": info.returncode == 0,
            "enables": works,
            "enable_seconds": round(seconds, 1),
            "problem": "" if works else _told(enabled.stderr),
        }
        if not works:
            self.command("enable", name, "--force")
            self._make_up_settings()
            # A person would agree in `setup`: the plugin may declare keys that are not its own.
            granted = [f"--grant={each}" for each in self.settings]
            self.command("enable", name, "--force", *granted)
        shown = _parsed(self.command("info", name, "--json").stdout).get("provider", {})
        found |= {"name": name, "own_name": shown.get("provider", name)}
        return {**found, "registers": shown.get("registers", "")}

    def _make_up_settings(self) -> None:
        """Give every required setting that is missing some value, by its variable."""
        status = _parsed(self.command("status", "--json").stdout)
        for row in (status.get("provider") or {}).get("settings", ()):
            if row["required"] and not row["set"]:
                self.settings[row["variable"]] = _made_up(f"{row['key']} {row['variable']}".lower())

    def _talked(self) -> dict[str, Any]:
        """A conversation: one process tells something, another one asks for it."""
        sessions = {part: self._session(part) for part in ("tell", "ask")}
        told, asked = sessions["tell"], sessions["ask"]
        problems = told.get("problems", [])
        return {
            "loads": bool(told.get("loads")) or "is not available" in "".join(problems),
            "problems": problems,
            "initialises": bool(told.get("initialises")),
            "stores": bool(told.get("stores")),
            "recalls_in_session": bool(told.get("recalls_in_session")),
            "recalls": bool(asked.get("recalls")),
            "tools": asked.get("tools", {}),
            "failures": {**told.get("failures", {}), **asked.get("failures", {})},
            "warnings": told.get("warnings", []),
            "threads_left": told.get("threads_left", []),
            "step_seconds": told.get("seconds", {}),
        }

    def _session(self, part: str) -> dict[str, Any]:
        done = self.run(self.python, "-P", HERE / "converse.py", self.home, part)
        try:
            report: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
        except ValueError:
            return {"failures": {"process": _told(done.stderr) or f"exit {done.returncode}"}}
        return report

    def _checked(self, name: str) -> dict[str, Any]:
        """What the conformance kit finds, where it is part of the command."""
        if self.command("check", "--help").returncode != 0:
            return {}
        variables = [f"--env={key}={value}" for key, value in self.settings.items()]
        variables += ["--live"] if "server" in self.package else []
        began = time.monotonic()
        report = self._report(name, *variables)
        if not report:
            return {"check_seconds": round(time.monotonic() - began, 1), "checks": None}
        results = [Result(**each) for each in report["checks"]]
        # On a busy machine something may be late once. A fault is what is there twice.
        late = [each.id for each in results if each.state == FAILED and _LATE.search(each.happened)]
        again = {each: self._report(name, "-k", each, *variables) for each in late}
        results = [_second(each, again.get(each.id, {})) for each in results]
        return {
            "check_seconds": round(time.monotonic() - began, 1),
            "checks": {
                "passed": _count(results, PASSED),
                "skipped": _count(results, SKIPPED),
                "failed": [each.id for each in results if each.state == FAILED],
                "grade": _grade(report, results),
            },
            # Without the names of temporary folders, which differ in every run.
            "happened": {
                each.id: re.sub(r"[^ '\"]*hermes-kit-\w+", "KIT", each.happened)
                for each in results
                if each.state == FAILED
            },
            "kit": report["kit"],
            "needs_network": any(each.reason.endswith(NEEDS_NETWORK) for each in results),
        }

    def _report(self, name: str, *options: str) -> dict[str, Any]:
        """What `check` says; {} if it did not end, or could not load the plugin."""
        command = (self.python, "-P", "-m", "hermes_core", "check", name, "--json", *options)
        return _parsed(self.run(*command, limit=self._check_seconds).stdout)

    def _described(self, name: str) -> dict[str, Any]:
        """What the package says about itself."""
        done = self.run(self.python, "-P", HERE / "describe.py", name)
        return _parsed(done.stdout)

    def _own_files(self) -> list[str]:
        """The folders and files in the home that are not the host's."""
        ours = {"config.yaml", "config.yaml.lock", "plugins.lock.json", "logs", "memories", ".env"}
        tops = {path.name.removesuffix("-wal").removesuffix("-shm") for path in self.home.iterdir()}
        return sorted(tops - ours - {"state.db", "sessions.db", "spool", "outbox.db"})

    def _outside(self) -> list[str]:
        """What was written in the user's folder, outside the Hermes home."""
        found = (path.relative_to(self.user) for path in self.user.rglob("*") if path.is_file())
        return sorted({path.parts[0] for path in found})

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Our command, as installed beside the package."""
        return self.run(self.python, "-P", "-m", "hermes_core", *arguments)

    def run(
        self, *arguments: str | Path, limit: float = SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment without a network."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.user),
            "HERMES_HOME": str(self.home),
            "PYTHONWARNINGS": "ignore",
            **self.package.get("environment", {}),
            **self.settings,
        }
        cwd = self.user.parent / "work"
        # Our own plugins call nobody but the server that the variables name.
        cut = () if "server" in self.package else _without_network()
        try:
            return subprocess.run(
                [*cut, *map(str, arguments)],
                capture_output=True, text=True, check=False,
                timeout=limit, cwd=cwd, env=environment,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            late = f"no end after {limit:g} s"
            return subprocess.CompletedProcess(arguments, 1, "", _PREFIX + late)


# Databases have their own addresses; port 9 is closed.
_SCHEMES = {"mongo": "mongodb", "redis": "redis", "postgres": "postgresql", "pg": "postgresql"}


def _made_up(about: str) -> str:
    """A value for a setting, by its names."""
    if not re.search(r"url|uri|dsn|endpoint", about):
        return "made-up"
    scheme = next((scheme for word, scheme in _SCHEMES.items() if word in about), "http")
    return f"{scheme}://127.0.0.1:9"


_NOT_FOUND = "no provider was found in the package; its own installer may write one to the home"
_LATE = re.compile(r"did not return|took|within|running|ended|not recalled|lost|does not return it")


def _second(first: Result, report: dict[str, Any]) -> Result:
    """The result of the second run of a check, if there was one."""
    rows = report.get("checks")
    return Result(**rows[0]) if rows else first


def _count(results: list[Result], state: str) -> int:
    return sum(each.state == state for each in results)


def _grade(report: dict[str, Any], results: list[Result]) -> str:
    plugin = report["plugin"]
    whole = Report(
        plugin["name"], plugin["distribution"], plugin["version"], plugin["source"],
        report["contract"], report["kit"], report["live"], report["seconds"], tuple(results),
    )  # fmt: skip
    return str(grade_of(whole))


@lru_cache(maxsize=1)
def _without_network() -> tuple[str, ...]:
    """What to put before a command so that it has no network; nothing where that can't be."""
    for command in (("unshare", "-n"), ("unshare", "-rn")):
        if (
            shutil.which("unshare")
            and not subprocess.run([*command, "true"], capture_output=True, check=False).returncode
        ):
            return command
    print("the network can't be cut here: plugins may reach their servers", file=sys.stderr)
    return ()


def _parsed(text: str) -> dict[str, Any]:
    """The JSON object in the last line of a text; {} if there is none."""
    try:
        value = json.loads(text.strip().rpartition("\n")[2] if "schema" not in text else text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _told(stderr: str) -> str:
    stderr = stderr.partition(" (nothing was changed")[0].partition(" (run: ")[0]
    lines = [line for line in stderr.strip().splitlines() if line.startswith(_PREFIX)]
    return (lines or stderr.strip().splitlines() or [""])[-1].removeprefix(_PREFIX).strip()


_PREFIX = "hermes-plugins: "


if __name__ == "__main__":
    sys.exit(main())
