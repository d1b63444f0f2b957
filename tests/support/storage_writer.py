"""An agent that talks until its standard input ends; prints what it has said, a line each."""

from __future__ import annotations

import sys
import threading
from itertools import count

from hermes_core import MemoryManager

manager = MemoryManager.from_config()
manager.initialize_all("meanwhile", platform="cli")
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
for number in count():
    manager.sync_all(f"turn {number}", "Noted.")
    print(f"turn {number}", flush=True)
    if ended.wait(0.005):
        break
manager.shutdown_all()
