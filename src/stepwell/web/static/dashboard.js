// What the pages do in a browser: live update, shortcuts, selection, confirmation. Every page also works without it.
"use strict";

const main = () => document.getElementById("main");
const dialog = (id) => document.getElementById(id);

// Live update: the server says that something has changed, and the page asks for itself again.
// A page stays as it is while somebody is working on it, or has loaded more of it.
let waiting = false;

function isBusy() {
  const at = document.activeElement;
  const typing = at && main().contains(at) && at.matches("input:not([type=checkbox]), textarea, select");
  return Boolean(
    document.hidden ||
      typing ||
      document.querySelector("dialog[open], input[name=id]:checked, form[data-dirty], [data-kept]") ||
      document.getSelection().toString()
  );
}

function showLive(state, text) {
  const live = document.getElementById("live");
  live.className = "live " + state;
  live.lastElementChild.textContent = text;
}

let refreshed = 0;
function refresh() {
  if (isBusy()) {
    waiting = true;
    showLive("held", "held");
    return;
  }
  waiting = false;
  showLive("on", "live");
  refreshed = Date.now();
  htmx.trigger(main(), "refresh");
}

// Somebody may have begun to work on the page after it was asked for.
document.addEventListener("htmx:before:swap", (event) => {
  if (event.detail.ctx.sourceElement !== main() || !isBusy()) return;
  event.preventDefault();
  waiting = true;
  showLive("held", "held");
});

function later() {
  // At most one request in two seconds, however busy the database is.
  const left = refreshed + 2000 - Date.now();
  clearTimeout(later.timer);
  later.timer = setTimeout(refresh, Math.max(left, 50));
}

// Whether the page could not be made. Then it says why by itself.
const isWithoutData = () => Boolean(document.querySelector("[data-away]"));

function changed() {
  const away = document.getElementById("away");
  const wasAway = !away.hidden || isWithoutData();
  away.hidden = true;
  if (wasAway) location.reload();
  else later();
}

function databaseAway() {
  if (isWithoutData()) return showLive("off", "waiting");
  showLive("off", "database away");
  document.getElementById("away").hidden = false;
}

let events = null;
function listen() {
  const { live, poll } = document.body.dataset;
  if (poll) {
    events = ask(live, Number(poll));
    return;
  }
  // A browser has few connections to one server: a page in the background gives its own back.
  events = new EventSource(live);
  events.onopen = () => (isWithoutData() ? showLive("off", "waiting") : showLive("on", "live"));
  events.onerror = () => {
    showLive("off", "reconnecting");
    // Something between here and the server does not let streams through.
    if (events.readyState === EventSource.CLOSED) document.body.dataset.poll = "5";
    if (events.readyState === EventSource.CLOSED) listen();
  };
  events.addEventListener("changed", changed);
  events.addEventListener("away", databaseAway);
}

// For servers that cannot hold a stream: ask every few seconds.
function ask(live, seconds) {
  let seen = new URL(live, location).searchParams.get("seen");
  async function look() {
    try {
      const answer = await fetch(live, { headers: { Accept: "application/json" } });
      const found = await answer.json();
      if (found.state === "away") return databaseAway();
      showLive("on", "live");
      if (found.seen !== seen || !document.getElementById("away").hidden) changed();
      seen = found.seen;
    } catch {
      showLive("off", "reconnecting");
    }
  }
  const timer = setInterval(look, 1000 * seconds);
  look();
  return { close: () => clearInterval(timer) };
}

setInterval(() => waiting && !isBusy() && refresh(), 500);
addEventListener("pagehide", () => events.close());
document.addEventListener("visibilitychange", () => {
  events.close();
  if (document.hidden) return;
  listen();
  refresh();
});

document.addEventListener("input", (event) => {
  if (event.target.form && main().contains(event.target) && event.target.type !== "checkbox")
    event.target.form.dataset.dirty = "yes";
});

// An argument that is given as its default or as null has no text: typing chooses the text, and the other ways clear it.
document.addEventListener("input", (event) => {
  const way = event.target.id && document.querySelector(`select[data-given="${CSS.escape(event.target.id)}"]`);
  if (way && ["default", "null"].includes(way.value)) way.value = "value";
});
document.addEventListener("change", (event) => {
  const way = event.target;
  if (!way.matches("select[data-given]")) return;
  const field = document.getElementById(way.dataset.given);
  if (["default", "null"].includes(way.value)) {
    way.dataset.typed = field.value || way.dataset.typed || "";
    field.value = "";
  } else field.value = field.value || way.dataset.typed || "";
});

// Selection.
function showSelection() {
  const boxes = [...document.querySelectorAll("input[name=id]")];
  const chosen = boxes.filter((box) => box.checked).length;
  const label = document.getElementById("selected-count");
  if (label) label.textContent = `${chosen} ${label.dataset.noun || "job"}${chosen === 1 ? "" : "s"} selected`;
  // Each button says how many it would change, and so does the question before a dangerous act.
  const named = (text) => text.replace("{n}", chosen).replace("{s}", chosen === 1 ? "" : "s");
  for (const button of chosen ? document.querySelectorAll("button[data-named]") : []) {
    button.textContent = named(button.dataset.named);
    if (button.dataset.asked) button.dataset.confirm = named(button.dataset.asked);
  }
  const all = document.getElementById("select-all");
  if (all) {
    all.checked = chosen > 0 && chosen === boxes.length;
    all.indeterminate = chosen > 0 && chosen < boxes.length;
  }
}

document.addEventListener("change", (event) => {
  if (event.target.id === "select-all")
    for (const box of document.querySelectorAll("input[name=id]")) box.checked = event.target.checked;
  showSelection();
});
document.addEventListener("reset", (event) => {
  delete event.target.dataset.dirty;
  setTimeout(showSelection);
});

// Confirmation of dangerous acts.
document.addEventListener("submit", (event) => {
  const form = event.target;
  const text = (event.submitter && event.submitter.dataset.confirm) || form.dataset.confirm;
  if (!text || form.dataset.confirmed) return;
  event.preventDefault();
  document.getElementById("confirm-text").textContent = text;
  const asking = dialog("confirm");
  asking.returnValue = "no";
  asking.onclose = () => {
    if (asking.returnValue !== "yes") return;
    form.dataset.confirmed = "yes";
    form.requestSubmit(event.submitter);
  };
  asking.showModal();
});

// Rows: a click anywhere opens them, and keys move between them.
const rows = () => [...document.querySelectorAll("main tr[data-href]")];
let current = "";

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("current"));
  const next = all[Math.min(Math.max(at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step, 0), all.length - 1)];
  all.forEach((row) => row.classList.toggle("current", row === next));
  current = next.id;
  next.scrollIntoView({ block: "nearest" });
  const link = next.querySelector("a");
  if (link) link.focus({ preventScroll: true });
}

document.addEventListener("click", (event) => {
  const closing = event.target.closest("[data-close]");
  if (closing) document.getElementById(closing.dataset.close).remove();
  const option = event.target.closest("[data-goto]");
  if (option) location.href = option.dataset.goto;
  const row = event.target.closest("tr[data-href]");
  if (row && !event.target.closest("a, button, input, label, form.act, details") && !document.getSelection().toString())
    location.href = row.dataset.href;
});

// Shortcuts.
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input:not([type=checkbox]), textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const row = document.querySelector("tr.current");
  if (event.key === "?") dialog("help").showModal();
  else if (event.key === "/") document.querySelector("#filters input:not([type=hidden])")?.focus();
  else if (event.key === "n") move(1);
  else if (event.key === "p") move(-1);
  else if (event.key === "x") row?.querySelector("input[name=id]")?.click();
  else if (event.key === "Enter" && row && event.target.tagName !== "BUTTON" && event.target.tagName !== "A") location.href = row.dataset.href;
  else if (event.key === "Escape") document.getElementById("selection")?.reset();
  else {
    const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (!link) return;
    link.click();
  }
  if (event.key === "/") event.preventDefault();
});

// The palette: pages, saved views, and jobs by their id.
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

let views = [];
async function loadViews() {
  try {
    const answer = await fetch(document.body.dataset.views, { headers: { Accept: "application/json" } });
    if (answer.ok) views = (await answer.json()).views.map((view) => ["View " + view.name, view.url]);
  } catch {
    // The pages are found without them.
  }
  const chosen = [...document.querySelectorAll("#palette-list li")].findIndex((item) => item.ariaSelected === "true");
  showFound();
  choose(document.querySelectorAll("#palette-list li")[Math.max(chosen, 0)]);
}

function found(text) {
  const pages = [...document.querySelectorAll("header nav a")].map((a) => [a.firstChild.textContent, a.href]);
  const links = [...pages, ...views];
  const jobs = document.body.dataset.jobs;
  if (ID.test(text)) return [["Job " + text, jobs + "/" + text]];
  const query = encodeURIComponent(text);
  const matching = links.filter(([name]) => name.toLowerCase().includes(text.toLowerCase()));
  const searches = text
    ? [["Jobs of task " + text, `${jobs}?task=${query}`], ["Jobs in queue " + text, `${jobs}?queue=${query}`], ["Jobs with error " + text, `${jobs}?state=failed&error=${query}`]]
    : [];
  return [...matching, ...searches];
}

function showFound() {
  const list = document.getElementById("palette-list");
  list.replaceChildren(
    ...found(document.getElementById("palette-input").value.trim()).map(([name, href], place) => {
      const item = document.createElement("li");
      item.id = "found-" + place;
      item.textContent = name;
      item.dataset.goto = href;
      item.setAttribute("role", "option");
      return item;
    })
  );
  choose(list.firstElementChild);
}

function choose(chosen) {
  for (const item of document.querySelectorAll("#palette-list li")) item.setAttribute("aria-selected", String(item === chosen));
  document.getElementById("palette-input").setAttribute("aria-activedescendant", chosen ? chosen.id : "");
  chosen?.scrollIntoView({ block: "nearest" });
}

function openPalette() {
  const input = document.getElementById("palette-input");
  input.value = "";
  showFound();
  dialog("palette").showModal();
  input.focus();
  loadViews();
}

document.getElementById("palette-input").addEventListener("input", showFound);
document.getElementById("palette-input").addEventListener("keydown", (event) => {
  const items = [...document.querySelectorAll("#palette-list li")];
  const at = items.findIndex((item) => item.getAttribute("aria-selected") === "true");
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    choose(items[Math.min(Math.max(at + (event.key === "ArrowDown" ? 1 : -1), 0), items.length - 1)]);
  } else if (event.key === "Enter" && items[at]) {
    event.preventDefault();
    location.href = items[at].dataset.goto;
  }
});

document.getElementById("help-button").addEventListener("click", () => dialog("help").showModal());
document.getElementById("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const root = document.documentElement;
  const now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("stepwell-theme", root.dataset.theme);
});

document.addEventListener("htmx:after:swap", () => {
  if (current) document.getElementById(current)?.classList.add("current");
});
// Not scrollIntoView, from where the first Tab would go on.
const here = document.querySelector(".side nav [aria-current]");
if (here) here.parentElement.scrollLeft = here.offsetLeft + here.offsetWidth / 2 - innerWidth / 2;

showSelection();
listen();
