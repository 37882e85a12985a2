// A key, a reload and a copy button. Every page is complete without it. Sealed secrets have a page of their own, without a script.
"use strict";

const base = document.documentElement.dataset.base;

// The key `/` goes to the search, Escape leaves a field, as in many programs.
document.addEventListener("keydown", (event) => {
  const { target } = event;
  const isWriting = target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "Escape" && isWriting) target.blur();
  if (event.key !== "/" || isWriting || event.ctrlKey || event.metaKey || event.altKey) return;
  const field = document.getElementById("q");
  event.preventDefault();
  if (field) {
    field.focus();
    field.select();
  } else if (base) {
    location.assign(`${base}/#q`);
  }
});
if (location.hash === "#q") document.getElementById("q")?.focus();

// Buttons that copy an invite or a token. Without this script they stay hidden, and one click on the text selects all of it.
for (const button of document.querySelectorAll("[data-copies]")) {
  const source = document.getElementById(button.dataset.copies);
  if (!source || !navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    let words = "Copied";
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      getSelection().selectAllChildren(source);
      words = "Selected: press Ctrl+C";
    }
    button.textContent = words;
    const status = document.getElementById("said");
    if (status) status.textContent = words;
  });
}

// What was typed and not sent would be lost by a page that is drawn anew.
let isWritten = false;
document.addEventListener("input", () => {
  isWritten = true;
});

// Live parts: when something is new, the page is fetched again, and those parts that differ take the place of the old ones.
const live = () => [...document.querySelectorAll("[data-live]")];
const said = document.getElementById("said");
let isFetching = false;

async function renew() {
  if (isFetching || isWritten || document.hidden) return;
  isFetching = true;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error", cache: "no-store" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    let isNew = false;
    for (const part of live()) {
      const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
      if (!other || part.isEqualNode(other)) continue;
      const holdsFocus = part.contains(document.activeElement) && document.activeElement !== document.body;
      const isOpen = part.querySelector("details[open]");
      if (holdsFocus || isOpen) continue; // somebody is reading just there
      part.replaceWith(document.importNode(other, true));
      isNew = true;
    }
    if (isNew && said) said.textContent = "The page was brought up to date.";
  } catch {
    // The gateway has ended, or the visit has: the next click tells.
  } finally {
    isFetching = false;
  }
}

if (base && live().length && "EventSource" in window) {
  const news = new EventSource(`${base}/news`);
  news.addEventListener("changed", renew);
  addEventListener("pagehide", () => news.close());
  document.addEventListener("visibilitychange", renew);
}
