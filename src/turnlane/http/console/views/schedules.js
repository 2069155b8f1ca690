// What is said by the clock.

import { action } from "../actions.js";
import { get, post } from "../api.js";
import { element } from "../dom.js";
import { section } from "../section.js";
import { table } from "../table.js";
import { duration } from "../time.js";
import { badge, link, named, said, time, words } from "../words.js";

const TONES = { waiting: "good", due: "busy", running: "busy", paused: "warm", parked: "wrong", off: "quiet" };

export async function show(root) {
  let again = () => null;
  const then = () => again();
  const schedules = table({
    caption: "Schedules",
    empty: "No schedules. One says a prompt in a conversation at its times; add it here, or in turnlane.toml.",
    key: ({ name }) => name,
    columns: [
      { title: "Name", cell: ({ name }) => said(name), by: ({ name }) => name },
      { title: "State", cell: ({ state }) => badge(state, TONES[state]), by: ({ state }) => state },
      { title: "When", cell: whenOf },
      { title: "Next", cell: ({ next_at: at }) => time(at), by: ({ next_at: at }) => at },
      { title: "Last said", cell: ({ fired_at: at }) => time(at), by: ({ fired_at: at }) => at },
      {
        title: "Conversation",
        cell: ({ conversation }) => link(conversation),
        by: ({ conversation }) => conversation,
      },
      { title: "Prompt", cell: ({ prompt }) => words(prompt) },
      { title: "Kept in", cell: ({ by }) => (by === "file" ? "file" : "store"), by: ({ by }) => by },
      { title: "Do", cell: (each) => decisions(each, then) },
    ],
  });
  const { again: look, stop } = await section(root, {
    title: "Schedules",
    about: "What is said by the clock. Each due time is said once, whoever crashes.",
    controls: element("p", { class: "actions" }, adding(then)),
    body: schedules.box,
    load: () => get("/api/schedules"),
    paint: ({ schedules: all }) => schedules.show(all),
  });
  again = look;
  return stop;
}

const whenOf = ({ cron, zone, every_ms: every }) => (cron ? [
  said(cron),
  " ",
  element("small", {}, said(zone)),
] : `every ${duration(every)}`);

function adding(then) {
  return action({
    name: "add", label: "Add or change…", title: "Add a schedule", word: "Add",
    asks:
      "Its prompt is said in the conversation at each due time, as if somebody wrote it. The name of one " +
      "that is there already changes that one.",
    fields: [
      { name: "name", label: "Name", needed: true, hint: "Small letters, digits, - and _" },
      { name: "conversation", label: "Conversation", needed: true, hint: "Like site/alice" },
      { name: "prompt", label: "Prompt", kind: "area", needed: true },
      {
        name: "cron",
        label: "When, as cron",
        hint: "Five fields, or a word like @daily; leave empty for every so often",
      },
      { name: "zone", label: "In this time zone", value: "UTC" },
      { name: "every", label: "Or every", hint: "Like 15m or 2h" },
    ],
    does: ({ name, conversation, prompt, cron, zone, every }) =>
      post(
        "/api/schedules",
        { name, conversation, prompt, zone: zone || "UTC", cron: cron || null, every: every || null },
      ),
    told: "It is kept; the list tells when it comes next.",
    then,
  });
}

function decisions({ name, state, by, conversation }, then) {
  const act = (verb) => post(`/api/schedules/${encodeURIComponent(name)}/${verb}`);
  const isHeld = state === "paused" || state === "parked";
  return element("span", { class: "actions" },
    action({
      name: "fire",
      label: "Say it now",
      asks: `The prompt of ${name} is said in ${named(conversation)} now; its times go on as they are.`,
      does: () => act("fire"),
      told: "Said.",
      then,
    }),
    isHeld
      ? action({
        name: "resume",
        label: "Resume",
        asks: `${name} goes on with its next time; what passed meanwhile is not said.`,
        does: () => act("resume"),
        told: "It goes on.",
        then,
      })
      : action({
        name: "pause",
        label: "Pause",
        ready: state !== "off",
        why: "It is off.",
        asks: `${name} says nothing more until somebody resumes it.`,
        does: () => act("pause"),
        told: "Paused.",
        then,
      }),
    action({
      name: "remove",
      label: "Remove",
      danger: true,
      ready: by !== "file",
      why: "It is kept in the settings file: remove it there, or pause it.",
      asks: `${name} is forgotten, and says nothing more.`,
      does: () => act("remove"),
      told: "Removed.",
      then,
    }));
}
