// What leaves, left, or could not.

import { get } from "../api.js";
import { decisionsOn } from "../decisions.js";
import { element } from "../dom.js";
import { section } from "../section.js";
import { table } from "../table.js";
import { badge, link, said, since, time, words } from "../words.js";

const STATES = [
  ["failed", "Failed", "No delivery failed. One comes here when its platform refuses it, or never took it."],
  ["queued", "Waiting", "Nothing waits to be sent."],
  ["sent", "Sent", "Nothing was sent yet."],
  ["dropped", "Dropped", "No operator has dropped a delivery."],
];
const TONES = { failed: "wrong", held: "wrong", queued: "busy", sent: "good", dropped: "quiet" };

export async function show(root, place) {
  const [state, , empty] = STATES.find(([name]) => name === place.rest[0]) ?? STATES[0];
  let again = () => null;
  const deliveries = table({
    caption: "Deliveries",
    empty,
    key: ({ id }) => id,
    columns: [
      {
        title: "Conversation",
        cell: ({ conversation }) => link(conversation),
        by: ({ conversation }) => conversation,
      },
      {
        title: "State",
        cell: (each) => badge(each.held ? "held" : each.state, TONES[each.held ? "held" : each.state]),
      },
      {
        title: "Turn",
        cell: ({ turn, kind }) => (turn === null ? kind : String(turn)),
        by: ({ turn }) => turn ?? 0,
        number: true,
      },
      { title: "Text", cell: ({ text }) => words(text) },
      {
        title: "Queued",
        cell: ({ queued_at: at }) => (state === "queued" ? [since(at), " ago"] : time(at)),
        by: ({ queued_at: at }) => at,
      },
      { title: "Settled", cell: ({ settled_at: at }) => time(at), by: ({ settled_at: at }) => at },
      { title: "Attempt", cell: ({ attempt }) => String(attempt), by: ({ attempt }) => attempt, number: true },
      { title: "Receipt or cause", cell: ({ receipt, cause }) => said(cause ?? receipt ?? "–") },
      { title: "Decide", cell: (each) => decisionsOn(each, () => again()) },
    ],
  });
  const { again: look, stop } = await section(root, {
    title: "Outbox",
    about:
      "What leaves conversations. A reply that may have arrived is held where nobody can tell: look on the " +
      "platform, then send it again or drop it.",
    controls: tabs(state),
    body: deliveries.box,
    load: () => load(state),
    paint: (rows) => deliveries.show(rows),
  });
  again = look;
  return stop;
}

function tabs(state) {
  return element("nav", { class: "tabs", "aria-label": "By state" }, STATES.map(([name, title]) =>
    element("a", { href: `#/outbox/${name}`, "aria-current": name === state ? "page" : null }, title)));
}

async function load(state) {
  const { deliveries } = await get(`/api/outbox?state=${state}&limit=1000`);
  if (state !== "queued") return deliveries;
  const { lanes } = await get("/api/lanes?kind=out&state=parked&limit=1000");
  const held = new Map(lanes.map((lane) => [lane.conversation, lane.done_seq + 1]));
  return deliveries.map((each) => ({ ...each, held: held.get(each.conversation) === each.seq }));
}
