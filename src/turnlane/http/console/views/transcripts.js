// Sessions of Claude Code: listed, searched and read.

import { get } from "../api.js";
import { element } from "../dom.js";
import { section } from "../section.js";
import { table } from "../table.js";
import { badge, costOf, count, many, money, said, time, tokensOf, words } from "../words.js";

const PAGE_ENTRIES = 200;
const WHO = { user: "theirs", assistant: "ours" };

export const show = (root, place) => (place.rest[0] ? showOne(root, place.rest[0]) : showAll(root));

// The list, and what is found

async function showAll(root) {
  const field = element(
    "input",
    {
      type: "search",
      id: "find",
      placeholder: 'Words, "a phrase", begin*, -not',
      "aria-label": "Search what was said",
      autocomplete: "off",
    },
  );
  const search = element("form", { class: "actions", role: "search" },
    field,
    element("button", { type: "submit", "data-act": "search" }, "Search"));
  const sessions = sessionTable();
  const hits = hitTable();
  let again = () => null;
  search.addEventListener("submit", (event) => {
    event.preventDefault();
    again();
  });
  const { again: look, stop } = await section(root, {
    title: "Transcripts",
    about: "Sessions of Claude Code that were taken in, beside the conversations of other channels.",
    controls: search,
    body: [hits.box, sessions.box],
    load: async () => {
      const wanted = field.value.trim();
      const found = `/api/transcripts/search?limit=100&q=${encodeURIComponent(wanted)}`;
      return get(wanted ? found : "/api/transcripts?limit=200");
    },
    paint: (told) => {
      hits.box.hidden = !told.hits;
      sessions.box.hidden = !told.sessions;
      hits.show(told.hits ?? []);
      sessions.show(told.sessions ?? []);
    },
    soon: 4000,
    late: 15000,
  });
  again = look;
  return stop;
}

const open = (session) => element("a", { href: `#/transcripts/${encodeURIComponent(session)}`, title: session },
  said(session.slice(0, 8)));
const all = (usage, of) => Object.values(usage).reduce((sum, each) => sum + of(each), 0);

function sessionTable() {
  return table({
    caption: "Transcripts, the latest at first",
    empty: "No transcripts. turnlane transcripts import takes in those of this machine; hooks keep them up to date.",
    key: ({ session }) => session,
    columns: [
      { title: "Session", cell: ({ session }) => open(session) },
      { title: "Project", cell: ({ project }) => said(project ?? "–"), by: ({ project }) => project },
      { title: "First asked", cell: ({ prompt }) => words(prompt ?? "–") },
      { title: "Last entry", cell: ({ ended_at: at }) => time(at), by: ({ ended_at: at }) => at },
      { title: "Entries", cell: ({ entries }) => count(entries), by: ({ entries }) => entries, number: true },
      {
        title: "Tokens",
        cell: ({ usage }) => count(all(usage, tokensOf)),
        by: ({ usage }) => all(usage, tokensOf),
        number: true,
      },
      {
        title: "Cost",
        cell: ({ usage }) => money(all(usage, costOf)),
        by: ({ usage }) => all(usage, costOf),
        number: true,
      },
    ],
  });
}

function hitTable() {
  return table({
    caption: "Found, the best fit at first",
    empty: "Nothing was found. Try fewer words, or the beginning of one with a star: depl*",
    key: ({ uuid, block }) => `${uuid} ${block}`,
    columns: [
      { title: "Session", cell: ({ session }) => open(session) },
      { title: "When", cell: ({ at }) => time(at), by: ({ at }) => at },
      {
        title: "Kind",
        cell: ({ kind, tool }) => said([kind, tool].filter(Boolean).join(" ")),
        by: ({ kind }) => kind,
      },
      { title: "Text", cell: ({ snippet }) => marked(snippet) },
      { title: "Project", cell: ({ project }) => said(project ?? "–"), by: ({ project }) => project },
    ],
  });
}

// Hits stand «so» in the snippet.
function marked(snippet) {
  const parts = snippet.split(/«([^»]*)»/);
  return element("p", { class: "words", dir: "auto" },
    parts.map((part, place) => (place % 2 ? element("mark", {}, part) : part)));
}

// One of them

async function showOne(root, session) {
  const facts = element("p", { class: "about" });
  const list = element("ol", { class: "story" });
  const more = element("button", { type: "button", "data-act": "more", hidden: true }, "Show more");
  const trouble = element("p", { class: "trouble", role: "alert" });
  let next = null;
  const load = async () => {
    more.disabled = true;
    try {
      const after = next === null ? "" : `&after=${encodeURIComponent(next)}`;
      const told = await get(`/api/transcripts/${encodeURIComponent(session)}?limit=${PAGE_ENTRIES}${after}`);
      facts.replaceChildren(said([
        told.session.project,
        told.session.branch,
        many(told.session.entries, "entry").replace("entrys", "entries"),
      ].filter(Boolean).join(" · ")));
      list.append(...told.entries.map(entryRow));
      next = told.next;
      trouble.textContent = "";
    } catch (error) {
      trouble.textContent = error.message;
    }
    more.disabled = false;
    more.hidden = next === null;
  };
  more.addEventListener("click", load);
  root.append(element("header", { class: "head" },
    element("p", {}, element("a", { href: "#/transcripts" }, "All transcripts")),
    element("h2", {}, "Transcript ", said(session)), facts, trouble), list, more);
  await load();
}

function entryRow(entry) {
  const isTalk = entry.kind in WHO;
  const what = [entry.kind, entry.tool, entry.agent ? "of a sub-agent" : null].filter(Boolean).join(" · ");
  const text = isTalk ? words(entry.text) : element("details", {},
    element("summary", {}, said(what)),
    words(entry.text, "pre"));
  return element("li", { class: "alone" }, element("div", { class: `line ${WHO[entry.kind] ?? "theirs"}` },
    element("div", { class: "at" }, time(entry.at)),
    element("article", { class: `bubble ${isTalk ? "" : "aside"}` },
      isTalk ? element("p", { class: "who" }, said(entry.model ?? what)) : null, text,
      entry.is_error ? badge("error", "wrong") : null)));
}
