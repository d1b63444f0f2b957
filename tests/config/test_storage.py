"""memory.storage and memory.storage_namespace: what they may say, and what they open."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hermes_core.config import load_config
from hermes_core.config.storage import home_database
from hermes_core.errors import ConfigError
from hermes_core.storage.address import PASSWORD

URL = "postgresql://ann@db.example/hermes"


def configured(home, *lines: str):
    (home / "config.yaml").write_text("memory:\n" + "".join(f"  {line}\n" for line in lines))
    return home


def test_files_are_the_default(home):
    assert load_config(home).storage == ""
    assert home_database(home) is None
    assert home_database(configured(home, "storage: files")) is None


def test_a_database_is_opened_without_connecting(home):
    configured(home, f"storage: {URL}?sslmode=require", "storage_namespace: team-a")
    database = home_database(home)
    assert (database.where, database.namespace) == (URL, "team-a")
    assert home_database(home) is database


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("storage: mysql://db/x", "expected files, or postgresql://user@host/database"),
        ("storage: postgresql://ann:hunter2@db/x", "has a password in it"),
        ("storage: postgresql://ann@db/x?password=hunter2", "has a password in it"),
        ("storage: postgresql://ann@db/x?sslpassword=hunter2", "has sslpassword in it"),
        ("storage: postgresql://ann@db/x?SSLPASSWORD=hunter2", "has SSLPASSWORD in it"),
        ("storage: postgresql://ann@db/x?ssl%70assword=hunter2", "has sslpassword in it"),
        ("storage: postgresql://ann@db/x?oauth_client_secret=hunter2", "has oauth_client_secret"),
        ("storage: 'postgresql://ann@db/x?service=a#&password=hunter2'", "has a # in it"),
        ("storage: 'postgresql://ann:hunter2#b@db/x'", "has a # in it"),
        ("storage: 'postgresql://ann:hunter2/b@db/x'", "not a number from 1 to 65535"),
        ("storage: postgresql://db:99999/x", "a port that is not a number from 1 to 65535"),
        ("storage: 'postgresql://a,[::1]:0/x'", "a port that is not a number from 1 to 65535"),
        ("storage: postgresql:///x?port=1,65536", "a port that is not a number from 1 to 65535"),
        ("storage: [a]", "expected a string, got a list"),
        ("storage_namespace: 'a b'", "expected up to 63 letters"),
        ("storage_namspace: x", "did you mean storage_namespace?"),
    ],
)
def test_a_wrong_setting_is_refused_without_showing_a_password(home, line, problem):
    configured(home, line)
    with pytest.raises(ConfigError) as caught:
        load_config(home)
    assert problem in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql:///", "postgresql:///"),
        ("postgresql:///x?host=/run/postgresql", "postgresql:///x"),
        ("postgres://ann@a:5432,[::1]:5433,c/x?port=", "postgres://ann@a:5432,[::1]:5433,c/x"),
    ],
)
def test_an_address_is_shown_as_it_is_written(home, address, shown):
    configured(home, f"storage: '{address}'")
    assert home_database(home).where == shown


def test_the_namespace_is_the_profile(home):
    profile = home / "profiles" / "work"
    profile.mkdir(parents=True)
    assert load_config(profile).storage_namespace == "work"
    assert load_config(home).storage_namespace == "default"


def test_the_password_is_our_secret(home, monkeypatch):
    configured(home, f"storage: {URL}")
    (home / ".env").write_text(f"{PASSWORD}=from-file\n")
    assert "from-file" in home_database(home)._conninfo()
    monkeypatch.setenv(PASSWORD, "from-environment")
    assert "from-environment" in home_database(home)._conninfo()


def test_without_the_setting_nothing_of_postgresql_is_imported(home):
    code = (
        "import sys, pathlib; from hermes_core import MemoryManager;"
        "m = MemoryManager.from_config(pathlib.Path(sys.argv[1])); m.initialize_all('s');"
        "m.sync_all('a', 'b'); m.shutdown_all();"
        "assert not any(n.startswith('psycopg') or n.endswith('.postgres') for n in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(home)], check=True, timeout=120)
