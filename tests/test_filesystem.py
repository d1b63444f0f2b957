"""Network file systems are told from local ones."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from hermes_core import database
from hermes_core.database import Layout, open_database
from hermes_core.filesystem import network_file_system

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
40 22 0:35 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
41 40 0:36 / /home/me/local rw - ext4 /dev/sdb1 rw
42 22 0:37 / /mnt/with\\040blank rw shared:3 - cifs //server/share rw
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS)
    return path


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/var/lib", ""),
        ("/home/me/.hermes", "nfs4"),
        ("/homeless", ""),
        ("/home/me/local/.hermes", ""),
        ("/mnt/with blank/x", "cifs"),
    ],
)
def test_the_innermost_mount_decides(place: str, kind: str, mounts: Path) -> None:
    assert network_file_system(Path(place), mounts) == kind


def test_without_a_list_of_mounts_nothing_is_claimed(tmp_path: Path) -> None:
    assert network_file_system(tmp_path, tmp_path / "missing") == ""


def test_on_a_network_file_system_a_database_does_without_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "network_file_system", lambda _path: "nfs4")
    path = tmp_path / "shelf.db"
    with closing(open_database(path, Layout("it", 7, ["CREATE TABLE t (x)"]))) as opened:
        opened.execute("INSERT INTO t VALUES (1)")
        assert opened.execute("PRAGMA journal_mode").fetchone()[0] == "truncate"
        assert not path.with_name("shelf.db-wal").exists()
    assert "network file system (nfs4)" in caplog.text
    monkeypatch.undo()
    with closing(open_database(path, Layout("it", 7, ["CREATE TABLE t (x)"]))) as opened:
        assert opened.execute("SELECT x FROM t").fetchone() == (1,)
        assert opened.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
