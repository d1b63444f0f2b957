"""Runs the scenarios in one environment and prints what came out, as one line of JSON.

Usage: python -P run.py FOLDER [--members]. Every scenario has its own home below FOLDER; with
``--members`` none is run.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from peers.stage import SCENARIOS, Stage

#: Far more than all of them take: what hangs is shown, and ended.
LIMIT = 240.0
MODULES = ("recall", "writes", "sessions", "tools", "threads", "fences", "helpers", "model_tools")


def main() -> None:
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    logging.disable(logging.CRITICAL)
    folder = Path(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):
        for module in MODULES:
            importlib.import_module(f"peers.{module}")
        from peers.members import members

        asked = () if "--members" in sys.argv else SCENARIOS
        found = {
            "results": {name: _result(folder / name) for name in asked},
            "members": members(),
            "scenarios": {name: each.member for name, each in SCENARIOS.items()},
        }
    print(json.dumps(found, default=repr), flush=True)
    os._exit(0)  # threads of providers that hang are not waited for


def _result(home: Path) -> Any:
    home.mkdir(parents=True)
    os.environ["HERMES_HOME"] = str(home)
    stage = Stage()
    try:
        return SCENARIOS[home.name].run(stage)
    except AttributeError as error:
        return {"missing": error.name}
    except Exception as error:
        return {"raised": type(error).__name__}
    finally:
        stage.close()


if __name__ == "__main__":
    main()
