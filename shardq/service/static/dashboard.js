// Live updates, keys of the keyboard, and copying.
"use strict";

const root = document.body.dataset.root;
const find = (selector) => document.querySelector(selector);
const stored = (name) => { try { return sessionStorage.getItem(name); } catch { return null; } };
const store = (area, name, value) => { try { area().setItem(name, value); } catch { /* storage may be off */ } };

// -- live updates: the server says when, the page reads itself again ------------------------------------------------

let stream = null;
let paused = stored("shardq-paused") === "true";
let reading = false;

function say(text) {
  const status = find("#status");
  if (status.textContent !== text) status.textContent = text;
}

function isBusy() {
  const live = find("#live");
  const active = document.activeElement;
  const selected = getSelection();
  return reading || find("dialog[open]") || (live.contains(active) && active.matches("input, select, textarea")) ||
    live.querySelector("form.login") || (!selected.isCollapsed && live.contains(selected.anchorNode));
}

async function readAgain() {
  if (isBusy() || document.body.dataset.follows !== "on") return;
  reading = true;
  const failed = find("#live .problem") !== null;
  try {
    await htmx.ajax("GET", location.pathname + location.search, { target: "#live", select: "#live", selectOOB: "#actions", swap: "outerHTML" });
    if (failed && !find("#live .problem")) location.reload();  // its title and forms come back, too
    if (focused) refocus(focused);
  } finally {
    reading = false;
  }
}

let focused = null;
document.addEventListener("htmx:beforeSwap", () => {
  focused = find("#live").contains(document.activeElement) ? pathTo(document.activeElement) : null;
});

// Actions stay while somebody uses them, but for those of another filter.
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  const actions = find("#actions");
  if (reading && (actions.contains(document.activeElement) || actions.querySelector("details[open]"))) event.detail.shouldSwap = false;
});

// The focus stays on what is at the same place after the page was read again.
function pathTo(element) {
  const path = [];
  for (let each = element; each.id !== "live"; each = each.parentElement) {
    path.unshift([...each.parentElement.children].indexOf(each));
  }
  return path;
}

function refocus(path) {
  let element = find("#live");
  for (const place of path) element = element?.children[place];
  element?.focus({ preventScroll: true });
}

// Reading takes at most a share of the time. Pages that show the same leave out the same ticks, so that the service
// reads once for all of them.
function ticksBetween(most) {
  return 2 ** Math.max(0, Math.ceil(Math.log2(Number(find("#live").dataset.took) / most)));
}

function follow() {
  const wanted = document.body.dataset.follows === "on" && !paused && !document.hidden && !find("form.login");
  if (wanted && stream === null) {
    stream = new EventSource(`${root}/events`);
    stream.addEventListener("tick", (event) => {
      const { number, seconds, share } = JSON.parse(event.data);
      const ticks = ticksBetween(share * seconds);
      say(ticks > 1 ? `live, every ${ticks * seconds} s` : "live");
      if (number % ticks === 0) readAgain();
    });
    stream.addEventListener("open", () => say("live"));
    stream.addEventListener("error", () => {
      say("not connected");
      if (stream?.readyState !== EventSource.CLOSED) return;  // else the browser tries again on its own
      stream = null;
      setTimeout(follow, 10_000);
    });
  } else if (!wanted && stream !== null) {
    stream.close();
    stream = null;
  }
  if (paused) say("paused");
  const button = find("#pause");
  button.setAttribute("aria-pressed", String(paused));
  button.textContent = paused ? "Resume" : "Pause";
}

function togglePause() {
  paused = !paused;
  store(() => sessionStorage, "shardq-paused", String(paused));
  follow();
  if (!paused) readAgain();
}

find("#pause").addEventListener("click", togglePause);
document.addEventListener("visibilitychange", () => {
  follow();
  if (!document.hidden && !paused) readAgain();
});
addEventListener("pagehide", () => { stream?.close(); stream = null; });
addEventListener("pageshow", follow);

// The address of a page names the filters that are set, and no others.
document.addEventListener("htmx:configRequest", (event) => {
  for (const [name, value] of [...event.detail.formData]) if (value === "") event.detail.formData.delete(name);
});

// -- relative times go on while a page is paused ---------------------------------------------------------------------

function span(seconds) {
  if (seconds < 10) return `${Math.max(0, Math.floor(seconds))} s`;
  let left = Math.floor(seconds);
  const parts = [];
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    const count = Math.floor(left / length);
    if (count && parts.length < 2) { parts.push(`${count} ${unit}`); left -= count * length; } else if (parts.length) break;
  }
  return parts.join(" ");
}

setInterval(() => {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("main time")) {
    const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
    const text = seconds >= 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
    if (time.textContent !== text) time.textContent = text;
  }
}, 1000);

// -- tables that are wider than the window are scrolled by keyboard ---------------------------------------------------

function reachTables() {
  for (const each of document.querySelectorAll(".scroll")) {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0; else each.removeAttribute("tabindex");
  }
}

document.addEventListener("htmx:afterSwap", reachTables);
addEventListener("resize", reachTables);
reachTables();

// -- the theme, copying, the keyboard --------------------------------------------------------------------------------

find("#theme").addEventListener("click", () => {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
  store(() => localStorage, "shardq-theme", document.documentElement.dataset.theme);
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    say("copied");
  } catch {
    say("copying is not allowed here");
  }
});

function showKeys() { find("#keys").showModal(); }
find("#help").addEventListener("click", showKeys);

let goes = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea") || find("dialog[open]")) return;
  if (goes) {
    goes = false;
    const link = find(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  const action = {
    "/": () => find("#search")?.focus(),
    "?": showKeys,
    p: togglePause,
    r: readAgain,
    g: () => { goes = true; setTimeout(() => { goes = false; }, 1500); },
  }[event.key];
  if (action) { event.preventDefault(); action(); }
});

follow();
find("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
