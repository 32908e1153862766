// Updates a page from server-sent events without moving the visible content, and handles its keys.
"use strict";

const main = document.getElementById("main");
const live = document.getElementById("live");
const problem = document.getElementById("problem");

// --- what changes ---------------------------------------------------------------------------------------------------

// Make `old` equal to `fresh`, but keep equal nodes, so that focus, selection, scroll position and open parts stay.
function morph(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open" && !(name === "hidden" && old.dataset.state)) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (name === "aria-pressed" || (name === "open" && old.tagName === "DETAILS")) continue;
    if (name === "class" && old.classList.contains("at")) old.className = value + " at";
    else if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const named = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = old.firstChild;
  for (const want of [...fresh.childNodes]) {
    let have = want.id ? named.get(want.id) : at;
    if (!want.id && have && have.id) have = null;
    if (have && have.nodeType === want.nodeType && have.nodeName === want.nodeName) {
      if (have !== at) old.insertBefore(have, at);
      else at = at.nextSibling;
      if (have.nodeType === Node.ELEMENT_NODE) morph(have, want);
      else if (have.nodeValue !== want.nodeValue) have.nodeValue = want.nodeValue;
    } else {
      old.insertBefore(document.importNode(want, true), at);
    }
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

function put({ id, html }) {
  const fresh = new DOMParser().parseFromString(`<section id="s-${id}">${html}</section>`, "text/html").body.firstChild;
  const old = document.getElementById(fresh.id);
  if (old) morph(old, fresh);
  else main.append(document.importNode(fresh, true));
}

function arrange(names) {
  for (const section of [...main.children]) if (!names.includes(section.id.slice(2))) section.remove();
  names.forEach((name, at) => {
    const section = document.getElementById(`s-${name}`);
    if (section && main.children[at] !== section) main.insertBefore(section, main.children[at] || null);
  });
}

let source = null;
let state = "connecting";
let at = Date.parse(live.dataset.at) || 0;
const OLD = 30; // seconds after which a state of the cluster is no longer called live

function connect() {
  if (source || document.hidden) return;
  state = "reading";
  source = new EventSource(document.body.dataset.live);
  source.addEventListener("section", (event) => { put(JSON.parse(event.data)); choose(); });
  source.addEventListener("look", (event) => {
    const looked = JSON.parse(event.data);
    arrange(looked.sections);
    problem.hidden = !looked.problem;
    problem.textContent = looked.problem ? `The cluster does not answer: ${looked.problem}` : "";
    at = Date.parse(looked.at) || 0;
    state = looked.problem ? "no response" : at ? "live" : "reading";
    say();
  });
  source.onerror = () => {
    state = "ome ui has ended or cannot be reached";
    say();
    if (source.readyState === EventSource.CLOSED) { source = null; setTimeout(connect, 5000); }
  };
  say();
}

function pause() { source?.close(); source = null; state = "paused"; say(); }

// Say whether the page is live. If it is not, say when the cluster was in the state that the page shows.
function say() {
  const seconds = Math.max(0, Math.floor((Date.now() - at) / 1000)), time = new Date(at).toLocaleTimeString();
  const on = state === "live" && seconds < OLD;
  live.className = `live ${on ? "on" : ["live", "reading", "paused", "connecting"].includes(state) ? "wait" : "lost"}`;
  const text = on ? `live ${time}` : [state === "live" ? "" : state, at ? `as of ${time}, ${age(seconds)} ago` : ""].filter(Boolean).join(", ");
  if (live.textContent !== text) live.textContent = text;
}

// A browser opens at most six connections to a server, so hidden pages close theirs.
document.addEventListener("visibilitychange", () => { if (document.hidden) pause(); else connect(); });
addEventListener("pagehide", pause);
addEventListener("pageshow", connect);

function age(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60]]) if (seconds >= 2 * size) return `${Math.floor(seconds / size)}${unit}`;
  return `${seconds}s`;
}
setInterval(() => {
  say();
  for (const time of document.querySelectorAll("time[datetime]")) {
    const text = age(Math.max(0, Math.floor((Date.now() - Date.parse(time.dateTime)) / 1000)));
    if (time.textContent !== text) time.textContent = text;
  }
}, 1000);

// --- which rows are shown ---------------------------------------------------------------------------------------------

const wanted = { state: "", words: [] };

function choose() {
  const rows = document.querySelectorAll("tr[data-state]");
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = (wanted.state && row.dataset.state !== wanted.state) || !wanted.words.every((word) => text.includes(word));
    if (!row.hidden) shown += 1;
  }
  for (const chip of document.querySelectorAll(".chip")) chip.setAttribute("aria-pressed", String(chip.dataset.state === wanted.state));
  const nothing = document.querySelector(".nothing");
  if (nothing) nothing.hidden = shown > 0 || rows.length === 0;
}

function clear() {
  wanted.state = ""; wanted.words = [];
  const input = document.getElementById("filter");
  if (input) { input.value = ""; input.blur(); }
  choose();
}

document.addEventListener("input", (event) => {
  if (event.target.id !== "filter") return;
  wanted.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  choose();
});

// --- copying and keys ---------------------------------------------------------------------------------------------------

let silence = 0;
function tell(text) {
  const said = document.getElementById("said");
  said.textContent = text;
  said.classList.add("shown");
  clearTimeout(silence);
  silence = setTimeout(() => said.classList.remove("shown"), 1600);
}

async function copy(box) {
  const text = box.querySelector("code").textContent;
  try { await navigator.clipboard.writeText(text); tell("Copied"); }
  catch { getSelection().selectAllChildren(box.querySelector("code")); tell("Selected: copy it yourself"); }
}

document.addEventListener("click", (event) => {
  const chip = event.target.closest(".chip");
  if (chip) { wanted.state = wanted.state === chip.dataset.state ? "" : chip.dataset.state; choose(); return; }
  const button = event.target.closest(".copy");
  if (button) { copy(button.parentElement); return; }
  if (event.target.closest("#help-open")) document.getElementById("help").showModal();
});

function step(by) {
  const rows = [...document.querySelectorAll(".list tbody tr")].filter((row) => !row.hidden);
  if (!rows.length) return;
  const now = rows.findIndex((row) => row.classList.contains("at"));
  const next = rows[now < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, now + by))];
  for (const row of rows) row.classList.toggle("at", row === next);
  (next.querySelector("a[href], summary") || next).focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function seen(box) { const at = box.getBoundingClientRect(); return at.width > 0 && at.bottom > 60 && at.top < innerHeight; }

const KEYS = {
  j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
  s: () => location.assign("/"), n: () => location.assign("/nodes"),
  "/": () => document.getElementById("filter")?.focus(),
  "?": () => document.getElementById("help").showModal(),
  y: () => {
    const box = document.activeElement.closest(".cmd, tr, article, li")?.querySelector(".cmd code")?.parentElement
      || [...document.querySelectorAll(".cmd")].find(seen);
    if (box) copy(box);
  },
  Escape: clear,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
  const typing = event.target.matches("input");
  if (typing && !["Escape", "ArrowDown", "Enter"].includes(event.key)) return;
  if (typing && event.key === "Enter") { event.target.blur(); step(1); event.preventDefault(); return; }
  const arrow = event.key.startsWith("Arrow");
  if (arrow && !typing && !document.querySelector("tr.at") && !document.querySelector(".list")) return;
  const act = KEYS[event.key];
  if (act) { act(); event.preventDefault(); }
});

connect();
