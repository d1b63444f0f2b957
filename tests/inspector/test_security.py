"""Who may use the page, and what a browser may do with it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.inspected import PORT, Browser, configure, version_of
from support.notes import POISON

from hermes_builtin.sessions.archive import NewMessage, SessionFacts
from hermes_builtin.sessions.location import locate
from hermes_core.secrets import Secrets
from hermes_inspector.pages import READERS, WRITERS
from hermes_inspector.security import Access

PAGES = ["/", "/notes", "/notes/history", "/conversations", "/conversations/monday", "/recall",
         "/provider", "/outbox", "/forget"]  # fmt: skip
#: Each of them would set `window.hit` if it ran.
PAYLOADS = [
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg onload=window.hit=1>',
    "'><details open ontoggle=window.hit=1>",
    "</textarea><script>window.hit=1</script>",
    "</title><script>window.hit=1</script>",
    "javascript:window.hit=1",
    "{{ 7*7 }}{% raw %}",
    "<iframe srcdoc='<script>parent.hit=1</script>'>",
    "<a href=javascript:window.hit=1>x</a>",
    "<!--<script>window.hit=1//-->",
    "\u2028<script>window.hit=1</script>",
]


@pytest.fixture
def stranger(filled: Path):
    browser = Browser(filled)
    yield browser
    browser.close()


@pytest.mark.parametrize("path", [*PAGES, "/live", "/export", "/nothing"])
def test_without_the_cookie_nothing_is_shown(stranger, path):
    answer = stranger.client.get(path)
    assert answer.status_code == 401
    assert "stage-1" not in answer.text
    assert "hermes-plugins ui" in answer.text


def test_the_token_becomes_a_strict_cookie(stranger):
    answer = stranger.client.get(f"/?token={stranger.access.token}")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert stranger.access.token not in cookie
    assert "url=/" in answer.text  # the browser goes on to the address without the token
    assert "Overview" in stranger.get("/")


def test_a_wrong_token_or_cookie_opens_nothing(stranger):
    for token in ("", "x", stranger.access.token[:-1]):
        assert stranger.client.get(f"/?token={token}").status_code == 401
    stranger.client.cookies.set(stranger.access.cookie, "x" * 43)
    assert stranger.client.get("/").status_code == 401


def test_the_address_that_is_passed_to_a_browser_works_once():
    access = Access("127.0.0.1", PORT)
    token = access.url(once=True).partition("token=")[2]
    assert token != access.token
    assert access.accepts_token(token)
    assert not access.accepts_token(token)


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", "", "[", "x:y"],
)
def test_another_name_for_this_machine_is_refused(page, host):
    answer = page.client.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert "stage-1" not in answer.text


@pytest.mark.parametrize("host", [f"localhost:{PORT}", f"127.0.0.1:{PORT}", f"[::1]:{PORT}"])
def test_the_names_of_loopback_are_accepted(host):
    assert Access("127.0.0.1", PORT).accepts_host(host)


def test_everywhere_means_every_address_but_no_foreign_name():
    access = Access("0.0.0.0", PORT)
    assert access.accepts_host(f"192.0.2.7:{PORT}")
    assert not access.accepts_host(f"evil.example:{PORT}")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://127.0.0.1:{PORT + 1}"},
        {"sec-fetch-site": "cross-site", "origin": f"http://127.0.0.1:{PORT}"},
        {"sec-fetch-site": "same-site", "origin": f"http://127.0.0.1:{PORT}"},
        {"sec-fetch-site": "none"},
    ],
)
def test_a_form_of_another_site_changes_nothing(page, headers):
    data = {"csrf": page.access.csrf, "book": "memory", "text": "planted"}
    answer = page.client.post("/notes/add", data=data, headers=headers)
    assert answer.status_code == 403
    assert "planted" not in page.get("/notes")


def test_a_form_without_the_token_of_the_page_changes_nothing(page):
    for token in ("", "x", page.access.token):
        data = {"csrf": token, "book": "memory", "text": "planted"}
        headers = {"origin": page.access.origin}
        assert page.client.post("/notes/add", data=data, headers=headers).status_code == 403
    assert "planted" not in page.get("/notes")


def test_no_address_that_is_read_changes_anything(page):
    for path in WRITERS:
        assert page.client.get(path).status_code in (404, 405), path
    assert not {*READERS} & {*WRITERS}
    for method in ("put", "delete", "patch", "options"):
        assert page.client.request(method, "/notes").status_code == 405


@pytest.mark.parametrize("path", [*PAGES, "/static/ui.css", "/nothing"])
def test_every_answer_has_the_strict_headers(page, path):
    headers = page.client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


def test_a_huge_form_is_refused(page):
    assert "too much" in page.post("/notes/add", 413, book="memory", text="x" * 1_100_000)


def test_the_theme_leads_to_no_other_site(page):
    for back in ("//evil.example", "https://evil.example", "/\\evil.example"):
        data = {"csrf": page.access.csrf, "back": back}
        headers = {"origin": page.access.origin}
        answer = page.client.post("/theme", data=data, headers=headers, follow_redirects=False)
        assert answer.headers["location"] == "/"


#: Of these, three in `make test`: they take the same way through every page.
@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(each, marks=() if number % 4 == 0 else pytest.mark.stress)
        for number, each in enumerate(PAYLOADS)
    ],
)
def test_what_people_and_plugins_write_is_text(page, payload):
    page.post("/notes/add", book="memory", text=f"note {payload}")
    text = page.get("/notes") + page.get("/") + page.get("/notes/history")
    text += page.client.get("/conversations", params={"query": payload, "user": payload}).text
    text += page.client.get("/recall", params={"question": payload}).text
    text += page.client.get("/forget", params={"text": payload}).text
    text += page.client.get(f"/conversations/{payload}").text
    for written in (payload, f"note {payload}"):
        if any(each in written for each in "<>\"'"):
            assert written not in text
    assert not re.search(r"<(script(?! src=\"/static/ui.js\" defer)|iframe|img|svg onload)", text)
    assert 'href="javascript:' not in text


def test_stored_secrets_reach_no_page(page, filled):
    secret = "sk-live-51HhLm2eZvKYlo2C8"
    Secrets(filled, "dotenv").set("FACTS_API_KEY", secret)
    page.site.home._redactor = (0.0, page.site.home._redactor[1])
    (filled / "memories" / "MEMORY.md").write_text(f"The key is {secret}.", "utf-8")
    answers = [page.get(path) for path in PAGES]
    answers += [page.client.get("/conversations", params={"query": secret}).text]
    assert all(secret not in each for each in answers)
    assert "The key is" in answers[1]


def test_a_note_that_looks_like_a_secret_is_masked(page, filled):
    token = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"
    (filled / "memories" / "MEMORY.md").write_text(f"GitHub: {token}", "utf-8")
    for path in ("/notes", "/", "/notes/history", "/recall"):
        assert token not in page.get(path)
    assert "Not in the prompt" in page.get("/notes")


def test_the_guard_refuses_on_the_page_as_in_the_tool(page):
    text = page.post("/notes/add", 400, book="memory", text=POISON)
    assert "attempt to command the model" in text
    shown = page.get("/notes")
    assert "Refused by the guard" in shown
    name = re.search(r'id="blocked".*?name="id" value="([0-9a-f]{8})"', shown, re.DOTALL)[1]
    page.post("/notes/allow", id=name)
    page.post("/notes/add", book="memory", text=POISON)
    assert version_of(page.get("/notes"), "Ignore all previous")


def test_another_address_is_announced_with_a_warning(tmp_path):
    configure(tmp_path / "home")
    command = [sys.executable, "-P", "-u", "-m", "hermes_core", "ui", "--no-open",
               "--host", "0.0.0.0", "--home", str(tmp_path / "home")]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        line = process.stdout.readline()
        process.terminate()
        warning = process.stderr.read()
    assert b"http://127.0.0.1:" in line
    assert b"everybody who reaches 0.0.0.0" in warning


def test_a_search_for_a_part_of_a_secret_does_not_show_the_rest(page, filled):
    secret = "Zx9-alpha.marble-gamma-Qq7"
    Secrets(filled, "dotenv").set("FACTS_API_KEY", secret)
    page.site.home._redactor = (0.0, page.site.home._redactor[1])
    said = "word " * 95 + f"The key is {secret}, and marble is a stone."
    archive = locate(filled).open()
    archive.append(SessionFacts("told", "cli", started=1.0), [NewMessage("user", said, 1.0)])
    archive.close()
    for path in ("/conversations?query=marble", "/conversations/told?query=marble+alpha"):
        shown = re.sub("<[^>]*>", "", page.get(path))
        assert "marble is a stone" in shown
        assert "alpha" not in shown.replace("marble alpha", "")
        assert "gamma" not in shown


def test_a_diff_does_not_show_parts_of_a_secret(page, filled):
    old = "The phrase is correct horse battery staple now."
    page.post("/notes/add", book="memory", text=old)
    version = version_of(page.get("/notes"), old)
    new = "The phrase is correct now."
    page.post("/notes/edit", book="memory", version=version, text=new)
    Secrets(filled, "dotenv").set("FACTS_API_KEY", "correct horse battery staple")
    page.site.home._redactor = (0.0, page.site.home._redactor[1])
    shown = re.sub("<[^>]*>", "", page.get("/notes/history"))
    assert "The phrase is" in shown
    assert "horse battery" not in shown


@pytest.mark.parametrize(
    "other", ['a={"x": 1, "y": 2}', "list[0]=1", "name=ü", "broken", "a=b c; d"]
)
def test_cookies_of_other_pages_on_this_machine_do_not_lock_out(page, other):
    ours = f"{page.access.cookie}={page.client.cookies[page.access.cookie]}"
    page.client.cookies.clear()
    cookies = f"{other}; {ours}".encode()
    assert page.client.get("/outbox", headers={"cookie": cookies}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/notes/history?before=²",
        f"/notes/history?before={'9' * 30}",
        "/conversations/monday?at=²",
        f"/conversations?older=1:{'9' * 40}",
        "/conversations?older=nan:1",
        "/conversations?since=0001-01-01",
        "/conversations?until=9999-12-31",
        "/conversations/%00",
        "/conversations?user=%00&platform=%00",
        "/notes?day=9999-12-31",
        f"/outbox/{'9' * 40}",
        f"/outbox/{'9' * 5000}",
        "/provider?hook=%00&of=%00",
    ],
)
def test_numbers_and_days_that_nobody_has_are_no_crash(page, path):
    assert page.client.get(path).status_code in (200, 400, 404)


def test_an_empty_address_is_refused(tmp_path):
    command = [sys.executable, "-P", "-m", "hermes_core", "ui", "--no-open", "--host", ""]
    done = subprocess.run(
        [*command, "--home", str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "the address is empty" in done.stderr
