"""Machines of a fleet on one computer: network, process numbers and host name of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


class FleetMachine:
    """Runs Python programs as if on another machine.

    Args:
        number: It is called ``machineNUMBER``, and reaches this one under `gateway`.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        # Other runs on this computer may have theirs.
        kind, place, third = os.urandom(3).hex(), *(1 + each % 250 for each in os.urandom(2))
        self._name = f"hermes-{kind}"
        self._outside = f"h{kind}o"
        self.gateway = f"10.{place}.{third}.1"
        self._processes: list[subprocess.Popen[str]] = []
        if os.name != "posix" or os.geteuid() != 0:
            pytest.skip("network namespaces need root")
        for program in ("ip", "unshare"):
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed: apt-get install iproute2 util-linux")
        self._ip("netns", "add", self._name)
        outside, inside = self._outside, f"h{kind}i"
        self._ip("link", "add", outside, "type", "veth", "peer", "name", inside,
                 "netns", self._name)  # fmt: skip
        self._ip("address", "add", f"{self.gateway}/30", "dev", outside)
        self._ip("link", "set", outside, "up")
        within = ("-n", self._name)
        self._ip(*within, "address", "add", f"10.{place}.{third}.2/30", "dev", inside)
        self._ip(*within, "link", "set", inside, "up")

    def _ip(self, *arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            self.close()
            pytest.skip(f"network namespaces can't be made here: {done.stderr.strip()}")

    def start(self, source: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        """Start a program there."""
        command = [
            "ip", "netns", "exec", self._name,
            "unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
            "sh", "-c", f'hostname machine{self._number} && exec "$@"', "sh",
            sys.executable, "-P", "-c", source, *map(str, arguments),
        ]  # fmt: skip
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self._processes.append(process)
        return process

    def unplug(self) -> None:
        """Pull the cable: nothing arrives any more, and nobody says so."""
        self._ip("link", "set", self._outside, "down")

    def plug(self) -> None:
        self._ip("link", "set", self._outside, "up")

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        # First, and at once: what is in a namespace is removed some time after it.
        subprocess.run(["ip", "link", "delete", self._outside], capture_output=True, check=False)
        if Path(f"/run/netns/{self._name}").exists():
            subprocess.run(["ip", "netns", "delete", self._name], check=False)
