"""The commands of docs/fleet.md, on a server that lets people in as Debian's does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.archives import Talk
from support.postgres_faults import OwnServer

PAGE = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text("utf-8")
PASSWORDS = {"hermes": "correct horse", "backup": "another one", "postgres": "of the administrator"}
#: By the socket only who has the same name on the machine, by TCP whoever knows the password.
HBA = "local all all peer\nhost all all 127.0.0.1/32 scram-sha-256\n"
#: `sudo -u postgres` for a server of another user.
SUDO = 'sudo() { shift 2; PGHOST=127.0.0.1 PGUSER=postgres "$@"; }\n'


def commands(heading: str) -> str:
    """The code blocks of a section that are for a shell."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return "\n".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL))


@pytest.fixture
def run(folder: Path, tmp_path: Path, home: Path):
    """Runs commands where the password file has what people would type."""
    server = OwnServer(folder / "page")
    server.create()
    with closing(server.server.admin()) as admin:
        admin.execute("DROP DATABASE hermes WITH (FORCE)")
        admin.execute("DROP ROLE hermes")
        admin.execute(f"ALTER ROLE postgres PASSWORD '{PASSWORDS['postgres']}'")
        (server.data / "pg_hba.conf").write_text(HBA)
        admin.execute("SELECT pg_reload_conf()")
    passwords = tmp_path / "passwords"
    passwords.write_text("".join(f"*:*:*:{user}:{word}\n" for user, word in PASSWORDS.items()))
    passwords.chmod(0o600)
    environment = {
        **os.environ, "HERMES_HOME": str(home), "PGPASSFILE": str(passwords),
        "PGHOST": str(server.folder), "PGPORT": str(server.port),
        "PATH": f"{server.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip

    def run(script: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", SUDO + script], env=environment, cwd=tmp_path, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout

    yield run
    server.remove()


def test_the_quick_start_a_backup_and_its_restore(run, home: Path) -> None:
    start = commands("Quick start with Debian")
    run(re.search(r"sudo -u postgres psql(?: .*\\\n)*.*\n", start)[0])
    talk = Talk(home)
    talk.say("The kettle is blue.")
    talk.close()
    run("hermes-plugins storage migrate --to postgresql://hermes@127.0.0.1/hermes")
    assert "The kettle is blue." in run("hermes-plugins sessions search kettle")

    run(commands("Back up and restore"))

    assert "/restored" in run("hermes-plugins storage status")
    assert "The kettle is blue." in run("hermes-plugins sessions search kettle")
