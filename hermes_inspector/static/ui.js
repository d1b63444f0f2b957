// Live updates, and the message of a search result in view. Every page can be read without it.
"use strict";

const POLL_MILLISECONDS = 2000;
const watched = document.body.dataset.live.split(" ").filter(Boolean);
const box = document.getElementById("live");
// What the page shows; a page that answers a form has no state, and begins with the first look.
const seen = JSON.parse(document.body.dataset.seen);
let known = Object.keys(seen).length ? seen : null;

// The page has something that a person is writing: it must not be replaced.
function isBusy() {
  const fields = [...document.querySelectorAll("main input, main textarea, main select")];
  const changed = fields.some((field) =>
    field.type === "hidden" ? false :
    field.type === "checkbox" ? field.checked !== field.defaultChecked :
    field.tagName === "SELECT" ? [...field.options].some((each) => each.selected !== each.defaultSelected) && field.selectedIndex > 0 :
    field.value !== field.defaultValue);
  return changed || document.querySelector("main details.edit[open]") !== null;
}

function changedParts(state) {
  return watched.filter((part) => known !== null && state[part] !== known[part]);
}

async function replaceMain() {
  const answer = await fetch(location.href, { headers: { "X-Live": "1" } });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const main = document.getElementById("main");
  const open = [...main.querySelectorAll("details[id]")].map((each) => [each.id, each.open]);
  const focused = document.activeElement && main.contains(document.activeElement) ? document.activeElement.id : "";
  const fresh = document.adoptNode(page.getElementById("main"));
  main.replaceWith(fresh);
  for (const [id, isOpen] of open) {
    const each = document.getElementById(id);
    if (each) each.open = isOpen;
  }
  if (focused && document.getElementById(focused)) document.getElementById(focused).focus({ preventScroll: true });
}

function offerReload() {
  if (box.childNodes.length) return;
  const button = document.createElement("button");
  button.textContent = "Show it";
  button.addEventListener("click", () => location.reload());
  box.append("Something changed meanwhile.", button);
}

async function look() {
  if (document.hidden) return;
  try {
    const answer = await fetch("/live");
    if (!answer.ok) throw new Error(answer.statusText);
    const state = await answer.json();
    if (box.dataset.lost) {
      box.textContent = "";
      delete box.dataset.lost;
    }
    const parts = changedParts(state);
    known = known === null || !parts.length || !isBusy() ? state : known;
    if (!parts.length) return;
    if (isBusy()) offerReload();
    else await replaceMain();
  } catch {
    box.dataset.lost = "1";
    box.textContent = "The page is not running any more. Start hermes-plugins ui again.";
  }
}

async function watch() {
  for (;;) {
    await look();
    await new Promise((done) => setTimeout(done, POLL_MILLISECONDS));
  }
}

const hit = document.querySelector("[data-wanted]");
if (hit) {
  hit.scrollIntoView({ block: "center" });
  hit.focus({ preventScroll: true });
}
// A form is sent once, also if somebody clicks twice.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "1";
});
if (watched.length) watch();
