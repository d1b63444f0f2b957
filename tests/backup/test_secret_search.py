"""A backup without a passphrase has no secret that the home knows, in whatever file it is."""

from __future__ import annotations

import json
import zipfile
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest

from hermes_core.backup import secret_search
from hermes_core.backup.backup import create_backup
from hermes_core.backup.restore import restore
from hermes_core.backup.secret_search import SecretSearch
from hermes_core.secrets import Secrets

#: No search by format finds this one.
KNOWN = "Blauer/Elefant=im Porzellanladen"
PEM = f"-----BEGIN PRIVATE KEY-----\n{'MIIEvQIBADANBgkqhkiG9w0B' * 8}\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    (made / "plugins" / "p").mkdir(parents=True)
    Secrets(made, "dotenv").set("ACME_API_KEY", KNOWN, "acme")
    return made


def stored(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prod.env", f"KEY={KNOWN}\n"),
        ("CONFIG.JSON", json.dumps({"apiKey": KNOWN})),
        ("notes", f"the key is {KNOWN}, do not tell\n"),
        ("run.sh", f"curl -H 'X-Key: {KNOWN}' https://example.org\n"),
        ("log.jsonl", json.dumps({"url": f"https://example.org/?key={quote(KNOWN, safe='')}"})),
        ("large.json", json.dumps({"rows": ["x" * 100] * 11_000, "key": KNOWN})),
        ("plugins/p/config.yaml", f"api_key: {KNOWN}\nurl: https://example.org\n"),
    ],
)
def test_a_known_secret_is_in_no_file(home, tmp_path, name, text):
    (home / name).write_text(text)
    made = create_backup(home, tmp_path / "b.zip")
    contents = b"".join(stored(tmp_path / "b.zip").values())
    assert KNOWN.encode() not in contents
    assert quote(KNOWN, safe="").encode() not in contents
    assert [each for each in made.left_out if each.startswith(f"{name}: has secrets")]
    restore(tmp_path / "b.zip", tmp_path / "new")  # what was masked has its own checksum


def test_the_rest_of_a_masked_file_is_there_and_a_passphrase_keeps_all_of_it(home, tmp_path):
    text = f"#!/bin/sh\ncurl '{KNOWN}'\nexit 0\n"
    (home / "run.sh").write_text(text)
    create_backup(home, tmp_path / "b.zip")
    assert (
        stored(tmp_path / "b.zip")["home/run.sh"]
        == text.replace(KNOWN, "[redacted: secret]").encode()
    )
    create_backup(home, tmp_path / "c.zip", passphrase="correct horse")
    assert KNOWN.encode() not in b"".join(stored(tmp_path / "c.zip").values())
    restore(tmp_path / "c.zip", tmp_path / "new", "correct horse")
    assert (tmp_path / "new" / "run.sh").read_text() == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".netrc", "machine example.org login me password opaque\n"),
        ("keys/id_ed25519", "anything"),
        ("Server.PEM", "anything"),
        ("deploy", PEM),
        ("old.txt", f"This was it:\n{PEM}"),
    ],
)
def test_files_of_keys_are_left_out_and_listed(home, tmp_path, name, text):
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).write_text(text)
    made = create_backup(home, tmp_path / "b.zip")
    assert f"{name}: has secrets" in made.left_out
    assert f"home/{name}" not in stored(tmp_path / "b.zip")


@pytest.mark.parametrize(
    "name", ["auth.json", "AUTH/work", "mcp-tokens/srv", ".anthropic_oauth.json"]
)
def test_credentials_of_a_profile_are_left_out(home, tmp_path, name):
    path = home / "profiles" / "work" / name
    path.parent.mkdir(parents=True)
    path.write_text("opaque")
    made = create_backup(home, tmp_path / "b.zip")
    assert f"profiles/work/{name}: has secrets" in made.left_out
    assert f"home/profiles/work/{name}" not in stored(tmp_path / "b.zip")


def test_a_profile_is_copied_in_the_order_of_a_home(home, tmp_path):
    """What moves from one to the other meanwhile is in both copies."""
    order = ["sync/m.db", "pending/a.json", "memories/MEMORY.md"]
    order += ["state.db", "switch.db", "outbox.db"]
    for name in (*order, "upgrade.json"):
        path = home / "profiles" / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    made = create_backup(home, tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as file:
        names = [each for each in file.namelist() if "profiles" in each and each[-1] != "/"]
    assert names == [f"home/profiles/work/{each}" for each in order]
    assert any("upgrade.json" in each for each in made.left_out)


def test_secrets_of_a_profile_are_in_no_file(home, tmp_path):
    profile = home / "profiles" / "work"
    (profile / "plugins" / "p").mkdir(parents=True)
    Secrets(profile, "dotenv").set("WORK_API_KEY", "Grauer/Elefant=im Zoo", "acme")
    for path in (home / "run.sh", profile / "run.sh"):
        path.write_text("curl 'Grauer/Elefant=im Zoo'\n")
    (profile / "config.yaml").write_text("memory:\n  acme:\n    api_key: Grauer/Elefant=im Zoo\n")
    (profile / "plugins" / "p" / "names.json").write_text('{"api_key": "the-word-for-it"}')
    create_backup(home, tmp_path / "b.zip")
    files = stored(tmp_path / "b.zip")
    assert b"Grauer" not in b"".join(files.values())
    for name in ("run.sh", "profiles/work/run.sh", "profiles/work/config.yaml"):
        assert b"[redacted: secret]" in files[f"home/{name}"]
    # As in the home itself, the code of a plugin is not searched for what looks like a secret.
    assert b"the-word-for-it" in files["home/profiles/work/plugins/p/names.json"]


def test_secrets_of_a_profile_that_are_in_the_keyring_are_reported(home, tmp_path):
    profile = home / "profiles" / "work"
    profile.mkdir(parents=True)
    index = {"schema": 1, "secrets": {"WORK_KEY": {"store": "keyring", "provider": "acme"}}}
    (profile / "secrets.json").write_text(json.dumps(index))
    made = create_backup(home, tmp_path / "b.zip", passphrase="correct horse")
    why = "its secrets in the keyring; back up this home, too"
    assert f"profiles/work: {why}" in made.left_out


@pytest.mark.parametrize(
    ("secret", "is_masked"), [("Kurz-6", False), ("Lange-12-xyz", True)], ids=["6", "12"]
)
def test_encoded_secrets_are_found_from_12_characters_on(home, tmp_path, secret, is_masked):
    Secrets(home, "dotenv").set("SHORT_KEY", secret, "acme")
    encoded = b64encode(secret.encode()).decode()
    (home / "notes").write_text(f"{secret} {encoded}\n")
    create_backup(home, tmp_path / "b.zip")
    content = stored(tmp_path / "b.zip")["home/notes"].decode()
    assert secret not in content
    assert (encoded not in content) is is_masked


@pytest.mark.parametrize("name", ["api_key", "token", "password", "clientSecret"])
def test_values_of_config_yaml_are_masked_by_their_names(home, tmp_path, name):
    (home / "config.yaml").write_text(f"memory:\n  acme:\n    {name}: opaque-value\n    a: b\n")
    create_backup(home, tmp_path / "b.zip")
    text = stored(tmp_path / "b.zip")["home/config.yaml"].decode()
    assert text == f"memory:\n  acme:\n    {name}: [redacted: secret]\n    a: b\n"


@pytest.mark.parametrize(
    "line",
    ["api_key: ${ACME_API_KEY}", "api_key: ACME_API_KEY", "max_tokens: 4096", "token: null",
     "key: value of a map", "# no api_key here"],
)  # fmt: skip
def test_what_is_no_secret_stays_in_config_yaml(home, tmp_path, line):
    (home / "config.yaml").write_text(f"acme:\n  {line}\n")
    create_backup(home, tmp_path / "b.zip")
    assert stored(tmp_path / "b.zip")["home/config.yaml"].decode() == f"acme:\n  {line}\n"


@pytest.mark.parametrize(
    "name",
    ["memories/MEMORY.md", "pending/x.json", "spool/a.jsonl", "profiles/work/memories/MEMORY.md"],
)
def test_what_was_said_is_copied_as_it_is(home, tmp_path, name):
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(f"the key is {KNOWN}")
    made = create_backup(home, tmp_path / "b.zip")
    assert stored(tmp_path / "b.zip")[f"home/{name}"].decode() == f"the key is {KNOWN}"
    assert not [each for each in made.left_out if each.startswith(name)]


def test_a_large_file_is_searched_wherever_its_parts_end(monkeypatch):
    monkeypatch.setattr(secret_search, "_LONGEST_SECRET", 500)
    content = ("ä" * 700 + KNOWN + "x" * 300 + PEM + "y" * 900 + KNOWN).encode()
    expected = content.replace(KNOWN.encode(), b"*").replace(PEM.strip().encode(), b"*")
    for size in (7, 64, 501, 1000, 5000):
        search = SecretSearch([KNOWN])
        parts = [content[at : at + size] for at in range(0, len(content), size)]
        found = b"".join(search.masked(parts))
        assert found.replace(b"[redacted: secret]", b"*") == expected, size
        assert search.masked_some


def test_a_large_file_without_secrets_and_a_binary_one_stay_as_they_are():
    search = SecretSearch([KNOWN])
    for content in (b"\xff\xfe text \xc3" * 50_000, b"\0" + KNOWN.encode() * 3000):
        parts = [content[at : at + 4096] for at in range(0, len(content), 4096)]
        assert b"".join(search.masked(parts)) == content
        assert not search.masked_some
