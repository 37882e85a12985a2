// The page beside a result of memory_search or memory_status, by MCP's extension for apps (SEP-1865, 2026-01-26).
// Texts of the memory are data of anybody: they only ever become the text of an element, never HTML, an attribute or an address.
"use strict";

const MOST_HITS = 50;
const MOST_CHARS = 2000;
const DEADLINE_MS = 15000;
const PROTOCOL = "2026-01-26";
const at = (id) => document.getElementById(id);

// Invisible letters and marks of direction become their numbers, as in the panel (markdown_html.py); joiners within pictures and scripts stay.
const HIDDEN =
  /([\n\t\ufe0f]|(?<=\p{Extended_Pictographic}\ufe0f?)\u200d(?=\p{Extended_Pictographic})|(?<=[\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\u0900-\u0dff\u1780-\u17ff])[\u200c\u200d])|[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{DI}]/gu;

function plain(value) {
  const text = (typeof value === "string" ? value : "").replaceAll("\r\n", "\n");
  const shown = text.length > MOST_CHARS ? `${text.slice(0, MOST_CHARS)} …` : text;
  return shown.replace(HIDDEN, (found, kept) => kept ?? `⟨U+${found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

// The messages between the page and its client: JSON-RPC by postMessage.
const pending = new Map();
let lastId = 0;

function send(message) {
  window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
}

function request(method, params) {
  lastId += 1;
  const id = lastId;
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => settle(id, { error: { message: "the client did not answer in time" } }), DEADLINE_MS);
    pending.set(id, { resolve, reject, timer });
    send({ id, method, params });
  });
}

function settle(id, { result, error }) {
  const asked = pending.get(id);
  if (!asked) return;
  pending.delete(id);
  clearTimeout(asked.timer);
  if (error) asked.reject(new Error(plain(error.message)));
  else asked.resolve(result);
}

const NOTIFIED = new Map([
  ["ui/notifications/tool-input", ({ arguments: given }) => asked(given?.query)],
  ["ui/notifications/tool-result", (result) => show(result)],
  ["ui/notifications/tool-cancelled", () => say("The call was cancelled.")],
  ["ui/notifications/host-context-changed", (context) => theme(context)],
]);
const ANSWERED = new Set(["ping", "ui/resource-teardown"]);

window.addEventListener("message", ({ source, data }) => {
  if (source !== window.parent || data?.jsonrpc !== "2.0") return;
  if (typeof data.method !== "string") settle(data.id, data);
  else if (data.id === undefined) NOTIFIED.get(data.method)?.(data.params ?? {});
  else if (ANSWERED.has(data.method)) send({ id: data.id, result: {} });
  else send({ id: data.id, error: { code: -32601, message: "Method not found" } });
});

// What is shown.
function say(text) {
  at("said").textContent = plain(text);
}

function asked(query) {
  if (typeof query === "string") at("q").value = query;
}

// The stylesheet follows the system's colours; the client's may differ.
const ofDark = [...document.styleSheets[0].cssRules].filter((rule) => rule.media?.mediaText.includes("prefers-color-scheme"));

function theme(context) {
  if (context?.theme !== "light" && context?.theme !== "dark") return;
  document.documentElement.style.colorScheme = context.theme;
  for (const rule of ofDark) rule.media.mediaText = context.theme === "dark" ? "all" : "not all";
}

/** A copy of a template with its texts; an element without one is left out. */
function filled(template, texts) {
  const copy = at(template).content.cloneNode(true);
  for (const each of copy.querySelectorAll("[data-is]")) {
    each.textContent = plain(texts[each.dataset.is]);
    if (!each.textContent) each.remove();
  }
  return copy;
}

const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

function show(result) {
  const found = result?.structuredContent;
  const words = (result?.content ?? []).map((part) => plain(part?.text)).join("\n");
  if (result?.isError || !found) say(words || "There is no result.");
  else if (Array.isArray(found.results)) showHits(found);
  else if (Array.isArray(found.clashes)) showStatus(found);
  else say(words);
}

function showHits({ results, warnings, searchMode }) {
  const hits = results.slice(0, MOST_HITS);
  const list = document.createElement("ol");
  list.className = "list card";
  for (const hit of hits) {
    const replaced = hit.supersededBy?.[0]?.title;
    const copy = filled("hit", {
      title: hit.title || hit.heading || hit.path,
      place: `${hit.path}:${hit.startLine}`,
      project: hit.project,
      class: hit.class,
      author: `${hit.author}, ${String(hit.updatedAt).slice(0, 10)}`,
      snippet: hit.snippet,
      superseded: replaced ? `Superseded by ${replaced}` : "",
    });
    copy.querySelector(".class")?.classList.toggle("untrusted", hit.class === "untrusted");
    list.append(copy);
  }
  at("found").replaceChildren(...(hits.length ? [list] : []));
  at("found").hidden = !hits.length;
  const from = searchMode === "offline" ? ["in the files of this device: the server cannot be reached"] : [];
  say([`${counted(hits.length, "hit")}`, ...from, ...(warnings ?? [])].join("\n"));
}

function showStatus({ totalFiles, clashes, warnings }) {
  const paths = clashes.slice(0, MOST_HITS).map((each) => each.path);
  const conflicts = paths.length ? [`${counted(clashes.length, "file")} in conflict: ${paths.join(", ")}`] : [];
  say([`The memory has ${counted(totalFiles, "file")}.`, ...conflicts, ...(warnings ?? [])].join("\n"));
  look();
}

// What waits for the person: proposed notes, conflicts, outdated notes.
let isAsking = false;

async function call(name, given, then, failed = say) {
  if (isAsking || !canCall) return;
  isAsking = true;
  try {
    then(await request("tools/call", { name, arguments: given }));
  } catch (error) {
    failed(error.message);
  } finally {
    isAsking = false;
  }
}

// A client with fewer rights than this device has no such tool.
const look = () => call("memory_decisions", {}, showDecisions, showWay);

function showWay() {
  at("waiting").replaceChildren(paragraph("empty", "What waits for you is in the panel: confide panel."));
}

function paragraph(name, text) {
  const made = document.createElement("p");
  made.className = name;
  made.textContent = text;
  return made;
}

function showDecisions(result) {
  const found = result?.structuredContent;
  if (result?.isError || !Array.isArray(found?.decisions)) {
    show(result);
    return;
  }
  const list = document.createElement("ul");
  list.className = "list card";
  for (const each of found.decisions) {
    const copy = filled("decision", { text: each.text });
    copy.querySelector(".row").append(...each.choices.map((choice) => button(each.id, choice)));
    list.append(copy);
  }
  const said = [found.said, ...(found.problems ?? [])].map(plain).filter(Boolean).join("\n");
  const shown = found.decisions.length ? list : paragraph("empty", "Nothing waits for you here.");
  at("waiting").replaceChildren(paragraph("small quiet", said), shown);
}

function button(id, choice) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "second slim";
  made.textContent = plain(choice.title);
  made.addEventListener("click", () => call("memory_decide", { id, choice: choice.name }, showDecisions));
  return made;
}

function search() {
  const query = at("q").value.trim();
  if (query) call("memory_search", { query }, show);
}

at("search").addEventListener("click", search);
at("q").addEventListener("keydown", (event) => {
  if (event.key === "Enter") search();
});
at("look").addEventListener("click", look);

// The beginning: the client says what it can, and then passes the call and its result.
let canCall = false;

async function begin() {
  const params = { protocolVersion: PROTOCOL, appInfo: { name: "confide-memory", version: "1" }, appCapabilities: {} };
  const { hostCapabilities, hostContext } = await request("ui/initialize", params);
  canCall = hostCapabilities?.serverTools !== undefined;
  at("ask").hidden = at("look").hidden = !canCall;
  theme(hostContext);
  send({ method: "ui/notifications/initialized", params: {} });
  const resized = () => {
    const { width, height } = document.documentElement.getBoundingClientRect();
    send({ method: "ui/notifications/size-changed", params: { width: Math.ceil(width), height: Math.ceil(height) } });
  };
  new ResizeObserver(resized).observe(document.documentElement);
}

begin().catch((error) => say(error.message));
