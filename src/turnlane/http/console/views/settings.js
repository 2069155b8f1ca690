// What is in force, where it came from, and what can change while everything runs.

import { action } from "../actions.js";
import { get, put, remove } from "../api.js";
import { element } from "../dom.js";
import { section } from "../section.js";
import { table } from "../table.js";
import { badge, said } from "../words.js";

export async function show(root) {
  let again = () => null;
  let all = [];
  const field = element(
    "input",
    {
      type: "search",
      id: "find",
      placeholder: "Find a setting",
      "aria-label": "Find a setting",
      autocomplete: "off",
    },
  );
  const only = element("input", { type: "checkbox", id: "changeable" });
  const settings = table({
    caption: "Settings of the process that answers",
    empty: "No setting is called like this.",
    key: ({ name }) => name,
    columns: [
      { title: "Setting", cell: ({ name }) => element("code", {}, said(name)), by: ({ name }) => name },
      { title: "Value", cell: ({ value }) => element("code", {}, said(written(value))) },
      {
        title: "From",
        cell: ({ source }) => badge(source, source === "default" ? "quiet" : "busy"),
        by: ({ source }) => source,
      },
      {
        title: "At run time",
        cell: ({ changeable }) => (changeable ? "can change" : "read at the start"),
        by: ({ changeable }) => String(changeable),
      },
      { title: "Stored", cell: storedOf, by: ({ stored }) => stored },
      { title: "Do", cell: (each) => decisions(each, () => again()) },
    ],
  });
  const paint = () => settings.show(all.filter(isWanted));
  const isOpen = (each) => !only.checked || each.changeable || each.stored !== null;
  const isWanted = (each) => each.name.includes(field.value.trim()) && isOpen(each);
  field.addEventListener("input", paint);
  only.addEventListener("change", paint);
  const { again: look, stop } = await section(root, {
    title: "Settings",
    about:
      "A change made here is in force in all processes within a second. The command line and the " +
      "environment are stronger than what is stored; the file and the default are weaker.",
    controls: element("p", { class: "actions" },
      field,
      element("label", { for: "changeable" }, only, " only what can change now")),
    body: settings.box,
    load: () => get("/api/settings"),
    paint: ({ settings: now }) => {
      all = now;
      paint();
    },
  });
  again = look;
  return stop;
}

const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function storedOf({ stored, ignored }) {
  if (stored === null) return "–";
  return [
    element("code", {}, said(stored)),
    ignored ? element("p", { class: "cause" }, "not in force here: ", said(ignored)) : null,
  ];
}

function decisions({ name, value, changeable, stored }, then) {
  const path = `/api/settings/${encodeURIComponent(name)}`;
  return element("span", { class: "actions" },
    action({
      name: "change",
      label: "Change",
      word: "Set",
      ready: changeable,
      why: "It is read when a process starts; set it in the file.",
      asks: `${name} is stored for all processes, and in force within a second.`,
      fields: [{
        name: "value",
        label: "Value",
        value: stored ?? (value === null ? "" : written(value)),
        hint: "As in turnlane.toml, without quotes; null lifts a limit",
      }],
      does: (given) => put(path, { value: given.value }),
      told: (setting) => `${setting.name} is ${written(setting.value)} now.`,
      then,
    }),
    action({
      name: "unset", label: "Unset", ready: stored !== null, why: "Nothing is stored for it.",
      asks: `What is stored for ${name} is forgotten; it is then as the file or the default says.`,
      does: () => remove(path),
      told: (setting) => `${setting.name} is ${written(setting.value)} again.`,
      then,
    }));
}
