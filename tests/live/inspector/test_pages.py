"""Each page and each action in a real browser: mouse, keyboard, phone, two tabs, no JavaScript."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect
from support.inspected import RIGHT, WRONG, add_provider, configure
from support.notes import POISON

from hermes_core import MemoryManager

PAGES = ("Overview", "Notes", "Conversations", "Recall", "Provider", "Outbox")
#: Each of them sets `window.hit` if it runs.
PAYLOADS = (
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg onload=window.hit=1>',
    "</textarea><script>window.hit=1</script>",
    "<details open ontoggle=window.hit=1>x</details>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
)


class Clicks:
    """Counts what a person clicks."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.count = 0

    def click(self, selector: str) -> None:
        self.count += 1
        self._page.locator(selector).first.click()


def say(home, session, *notes, turn=None):
    agent = MemoryManager.from_config(home)
    agent.initialize_all(session, platform="cli")
    for note in notes:
        call = {"action": "add", "target": "memory", "content": note}
        agent.handle_tool_call("memory", call)
    if turn:
        agent.sync_all(*turn, session_id=session)
    agent.shutdown_all()


def test_every_page_opens(served):
    page = served.window()
    for name in PAGES:
        page.locator("nav").get_by_role("link", name=name, exact=True).click()
        expect(page.locator("h1")).to_contain_text(name)
        expect(page.locator("nav [aria-current=page]")).to_have_text(name)


def test_the_token_is_not_in_the_address_afterwards(served):
    page = served.window()
    expect(page).to_have_url(f"{served.origin}/")
    assert page.evaluate("document.cookie") == ""  # no script can read the cookie


def test_the_overview_is_checked_in_the_background(served):
    page = served.window()
    expect(page.locator(".verdict .sentence")).to_contain_text("The memory works")


def test_a_newcomer_corrects_a_wrong_note_in_six_clicks(served):
    page = served.window()
    hand = Clicks(page)
    hand.click("nav >> text=Recall")
    page.fill("#question", "Which server is staging?")
    hand.click("main >> text=Ask")
    note = page.locator("section[aria-labelledby=h-notes] li", has_text=WRONG)
    expect(note).to_contain_text("by the agent in conversation monday")
    # Where it came from: what was said.
    hand.click("section[aria-labelledby=h-notes] li >> text=conversation monday")
    expect(page.locator("[data-wanted]")).to_contain_text("Remember")
    page.go_back()
    hand.click("section[aria-labelledby=h-notes] li >> text=Correct")
    page.locator("details[open] textarea").fill(RIGHT)
    hand.click("details[open] button >> text=Save")
    expect(page.locator("#h-prompt")).to_be_visible()
    shown = page.locator("section[aria-labelledby=h-notes]")
    expect(shown).to_contain_text(RIGHT)
    expect(shown).not_to_contain_text(WRONG)
    assert hand.count <= 6


def test_a_newcomer_corrects_a_provider_in_six_clicks(served):
    add_provider(served.home, facts=("Kim is on call.", "The key is with Ann."))
    configure(served.home, "  provider: facts\n")
    page = served.window()
    hand = Clicks(page)
    hand.click("nav >> text=Recall")
    page.fill("#question", "Who is on call?")
    hand.click("main >> text=Ask")
    line = page.locator("section[aria-labelledby=h-p1]", has_text="Kim is on call.")
    expect(line).to_contain_text("provider:facts")  # where it came from
    hand.click("section[aria-labelledby=h-p1] li:has-text('Kim') >> text=Correct")
    page.locator("details[open] textarea").fill("Ann is on call.")
    hand.click("details[open] button >> text=Save")
    expect(page.locator("#h-forgot")).to_be_visible()
    expect(page.locator("section[aria-labelledby=h-notes]")).to_contain_text("Ann is on call.")
    expect(page.locator("main")).not_to_contain_text("Kim is on call.")
    assert hand.count <= 6


def test_notes_are_added_changed_removed_and_undone(served):
    page = served.window()
    page.click("nav >> text=Notes")
    page.locator("summary", has_text="Add a note").first.click()
    page.fill("#new-1", "Deploys are on Mondays.")
    page.locator("#add-1 button").click()
    expect(page.locator(".message")).to_contain_text("Saved.")
    entry = page.locator(".entries li", has_text="Deploys are")
    expect(entry).to_contain_text("by you, on this page")
    entry.locator("summary").click()
    entry.locator("textarea").fill("Deploys are on Tuesdays.")
    entry.get_by_role("button", name="Save").click()
    entry = page.locator(".entries li", has_text="Tuesdays")
    expect(entry).to_be_visible()
    page.click("main >> text=History")
    expect(page.locator(".timeline li").first.locator("ins")).to_have_text("Tuesdays.")
    page.locator(".timeline li").first.get_by_role("button").click()
    expect(page.locator(".message")).to_contain_text("was undone")
    page.click("nav >> text=Notes")
    entry = page.locator(".entries li", has_text="Mondays")
    entry.locator("summary").click()
    entry.get_by_role("button", name="Remove").click()
    expect(page.locator(".message")).to_contain_text("Removed.")
    expect(page.locator(".entries li", has_text="Mondays")).to_have_count(0)


def test_approve_reject_allow_and_an_earlier_day(served):
    configure(served.home, "  write_approval: true\n")
    say(served.home, "tuesday", "First.", "Second.")
    page = served.window()
    page.click("nav >> text=Notes")
    page.locator("#waiting li", has_text="First.").get_by_role("button", name="Approve").click()
    expect(page.locator(".entries", has_text="First.")).to_be_visible()
    page.locator("#waiting li", has_text="Second.").get_by_role("button", name="Reject").click()
    expect(page.locator("#waiting")).to_have_count(0)
    page.locator("summary", has_text="Add a note").first.click()
    page.fill("#new-1", POISON)
    page.locator("#add-1 button").click()
    expect(page.locator("main")).to_contain_text("attempt to command the model")
    page.click("nav >> text=Notes")
    page.locator("#blocked").get_by_role("button", name="Allow it").click()
    expect(page.locator(".message")).to_contain_text("Allowed")
    page.fill("#day", "2020-01-02")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("h1")).to_have_text("Notes on 2020-01-02")
    expect(page.locator("main")).to_contain_text("No notes on that day")


def test_search_shows_the_hit_in_view(served):
    say(served.home, "long", turn=("Where is the harbour?", "\n".join(["filler"] * 300)))
    agent = MemoryManager.from_config(served.home)
    agent.initialize_all("long", platform="cli")
    for number in range(60):
        agent.sync_all(f"Filler question {number}", "Filler answer.\n" * 5, session_id="long")
    agent.sync_all("The zebra crossing is closed.", "Noted.", session_id="long")
    agent.shutdown_all()
    page = served.window()
    page.click("nav >> text=Conversations")
    page.fill("#query", "zebra")
    page.press("#query", "Enter")
    expect(page.locator(".talks mark")).to_have_text("zebra")
    page.click(".talks a")
    hit = page.locator("[data-wanted]")
    expect(hit).to_be_in_viewport()
    expect(hit.locator("mark")).to_have_text("zebra")


def test_export_and_forget_with_a_receipt(served):
    page = served.window()
    page.click("nav >> text=Conversations")
    with page.expect_download() as download:
        page.click("text=Export all as JSONL")
    rows = download.value.path().read_text("utf-8").splitlines()
    assert json.loads(rows[0])["session_id"] == "monday"
    page.click(".talks a")
    page.click("text=Forget this conversation")
    page.click("text=Search for it")
    expect(page.locator("#h-found")).to_have_text("This would be deleted")
    page.click("text=Delete all of this")
    expect(page.locator("#h-receipt")).to_have_text("Deleted")
    with page.expect_download() as download:
        page.click("text=download")
    assert json.loads(download.value.path().read_text("utf-8"))["complete"] is True
    page.click("nav >> text=Conversations")
    expect(page.locator("main")).to_contain_text("There are no conversations yet")


def test_the_provider_is_tried_enabled_asked_and_disabled(served):
    add_provider(served.home, facts=("Kim is on call.",))
    page = served.window()
    page.click("nav >> text=Provider")
    page.get_by_role("button", name="Enable facts").click()
    expect(page.locator("#result")).to_contain_text("facts is enabled.")
    page.get_by_role("button", name="Show the tools").click()
    expect(page.locator("main")).to_contain_text("facts_search")
    page.fill("#question", "Who is on call?")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("main")).to_contain_text("Kim is on call.")
    page.click("nav >> text=Provider")
    page.get_by_role("button", name="Disable facts").click()
    expect(page.locator(".message")).to_contain_text("is disabled")


def test_the_conformance_checks_run_in_the_background(served):
    add_provider(served.home, facts=())
    configure(served.home, "  provider: facts\n")
    page = served.window()
    page.click("nav >> text=Provider")
    page.get_by_role("button", name="Run the checks").click()
    expect(page.locator("#result .working")).to_be_visible()
    expect(page.locator("section[aria-labelledby=h-check]")).to_contain_text(
        re.compile(r"\d+ passed"), timeout=300_000
    )


def test_writes_of_the_outbox_are_retried_and_dropped(served):
    add_provider(served.home, "down", on_turn="raise ConnectionError('it is down')")
    configure(served.home, "  provider: down\n")
    say(served.home, "monday", turn=("One", "Two"))
    page = served.window()
    page.click("nav >> text=Outbox")
    expect(page.locator("main")).to_contain_text("it is down")
    page.get_by_role("button", name=re.compile("Retry write")).click()
    expect(page.locator(".message")).to_contain_text("still waiting")
    page.locator("td a").first.click()
    expect(page.locator("pre")).to_contain_text('"user_content": "One"')
    page.go_back()
    page.locator("summary", has_text="Drop").click()
    page.get_by_role("button", name=re.compile("Drop write")).click()
    expect(page.locator("main")).to_contain_text("The outbox is empty.")


def test_the_keyboard_is_enough(served):
    page = served.window()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.goto(f"{served.origin}/notes")
    tab_to(page, "summary", "Correct")
    page.keyboard.press("Enter")
    tab_to(page, "textarea", "")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Control+A")
    page.keyboard.type(RIGHT)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".message")).to_contain_text("Saved.")
    expect(page.locator(".entries").first).to_contain_text(RIGHT)


def tab_to(page: Page, tag: str, text: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "[document.activeElement.tagName, document.activeElement.textContent]"
        )
        if found[0].lower() == tag and text in found[1]:
            return
    raise AssertionError(f"Tab does not lead to {tag} {text}")


def test_every_field_has_a_label_and_every_button_a_name(served):
    page = served.window()
    for path in ("/", "/notes", "/notes/history", "/conversations", "/recall", "/provider",
                 "/outbox", "/forget", "/conversations/monday"):  # fmt: skip
        page.goto(f"{served.origin}{path}")
        nameless = page.evaluate(
            """[...document.querySelectorAll("input:not([type=hidden]), textarea, select")]
               .filter((each) => !each.labels.length).map((each) => each.outerHTML)"""
        )
        assert nameless == [], path
        assert page.evaluate(
            "[...document.querySelectorAll('button, a, summary')]"
            ".every((each) => each.textContent.trim())"
        ), path
        assert page.locator("h1").count() == 1
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
        assert len(ids) == len({*ids}), path


def test_a_phone_shows_everything_without_scrolling_sideways(served):
    add_provider(served.home, "down", on_turn="raise ConnectionError('it is down')")
    configure(served.home, "  provider: down\n")
    say(served.home, "monday", turn=("One", "Two"))
    page = served.window(width=390)
    for path in ("/", "/notes", "/notes/history", "/conversations", "/conversations/monday",
                 "/recall", "/provider", "/outbox", "/forget"):  # fmt: skip
        page.goto(f"{served.origin}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        wide = page.evaluate(
            """[...document.querySelectorAll("body *")]
               .filter((each) => each.getBoundingClientRect().right > 391)
               .map((each) => each.outerHTML.slice(0, 80))"""
        )
        assert wide == [], path
    page.goto(f"{served.origin}/outbox")
    cell = page.locator("tbody td").first
    assert page.evaluate("getComputedStyle(document.querySelector('td')).display") == "block"
    expect(cell).to_be_visible()


def test_reading_works_without_javascript(served):
    page = served.window(javascript=False)
    page.goto(f"{served.origin}/notes")
    expect(page.locator(".entries").first).to_contain_text(WRONG)
    page.goto(f"{served.origin}/conversations?query=billing")
    expect(page.locator("mark").first).to_have_text("billing")
    page.click(".talks a")
    expect(page.locator(".said.wanted")).to_be_visible()
    # And so do forms.
    page.goto(f"{served.origin}/notes")
    page.locator("summary", has_text="Correct").first.click()
    page.locator("details[open] textarea").fill(RIGHT)
    page.locator("details[open] button >> text=Save").click()
    expect(page.locator(".entries").first).to_contain_text(RIGHT)


def test_the_theme_follows_the_system_until_somebody_chooses(served):
    def has_ground(page: Page, colour: str) -> None:
        expect(page.locator("body")).to_have_css("background-color", colour)

    bright, dim = "rgb(255, 255, 255)", "rgb(20, 23, 26)"
    light, dark = served.window(), served.window(scheme="dark")
    has_ground(light, bright)
    has_ground(dark, dim)
    light.click("text=Theme: system")
    expect(light.locator("text=Theme: dark")).to_be_visible()
    has_ground(light, dim)
    dark.click("text=Theme: system")
    dark.click("text=Theme: dark")
    expect(dark.locator("text=Theme: light")).to_be_visible()
    has_ground(dark, bright)


def test_the_second_of_two_tabs_sees_both_texts(served):
    first = served.window()
    first.goto(f"{served.origin}/notes")
    second = first.context.new_page()
    second.goto(f"{served.origin}/notes")
    for page in (first, second):
        page.locator("summary", has_text="Correct").first.click()
    first.locator("details[open] textarea").fill(RIGHT)
    second.locator("details[open] textarea").fill("It is stage-3.")
    first.locator("details[open] button >> text=Save").click()
    expect(first.locator(".message")).to_contain_text("Saved.")
    # The other tab notices, and does not throw away what is being written.
    expect(second.locator("#live")).to_contain_text("Something changed meanwhile.")
    second.locator("details[open] button >> text=Save").click()
    expect(second.locator("h1")).to_have_text("This note was changed meanwhile")
    expect(second.locator("section[aria-labelledby=theirs]")).to_contain_text("stage-2.")
    expect(second.locator("#text")).to_have_value("It is stage-3.")


def test_a_page_follows_an_agent_that_writes(served):
    page = served.window()
    page.goto(f"{served.origin}/notes")
    say(served.home, "tuesday", "The office is in Linz.", turn=("Where?", "In Linz."))
    expect(page.locator(".entries").first).to_contain_text("The office is in Linz.")
    page.click("nav >> text=Conversations")
    expect(page.locator(".talks li")).to_have_count(2)
    say(served.home, "wednesday", turn=("And now?", "Still in Linz."))
    expect(page.locator(".talks li")).to_have_count(3)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_payload_runs_anywhere(served, payload):
    home = served.home
    say(home, f"s {payload}", f"Note {payload}", turn=(f"Said {payload}", f"Answer {payload}"))
    # A provider's name can't have these characters; what it says about itself can.
    error = f"raise ValueError({payload!r})"
    add_provider(home, "evil", on_turn=error, on_recall=f"return {payload!r}")
    manifest = json.dumps({"name": "evil", "version": payload, "description": payload})
    (home / "plugins" / "evil" / "plugin.yaml").write_text(manifest, "utf-8")
    configure(home, "  provider: evil\n")
    say(home, "later", turn=("One", "Two"))
    page = served.window()
    page.goto(f"{served.origin}/recall")
    page.fill("#question", payload)
    page.click("main >> text=Ask")
    expect(page.locator("#h-prompt")).to_be_visible()
    assert page.evaluate("window.hit") is None
    for path in ("/", "/notes", "/notes/history", "/conversations", "/conversations?query=Said",
                 "/provider", "/outbox", "/forget"):  # fmt: skip
        page.goto(f"{served.origin}{path}")
        assert page.evaluate("window.hit") is None, path
        assert page.locator("iframe, main img").count() == 0, path
    page.goto(f"{served.origin}/conversations?query=Said")
    page.click(".talks a")
    expect(page.locator(".talk")).to_contain_text(payload)
    assert page.evaluate("window.hit") is None


def test_the_page_says_that_the_command_has_ended(served):
    page = served.window()
    page.goto(f"{served.origin}/notes")
    served.stop()
    served.process = None
    expect(page.locator("#live")).to_contain_text("not running any more")
    served.errors = []
