// Turns that were given up on. What was said in them is kept until somebody decides.

import { action } from "../actions.js";
import { get, post } from "../api.js";
import { element } from "../dom.js";
import { section } from "../section.js";
import { table } from "../table.js";
import { link, named, said, time, words } from "../words.js";

export async function show(root) {
  let again = () => null;
  const letters = table({
    caption: "Dead letters, the latest at first",
    empty: "No dead letters. A turn comes here when all its attempts failed, or when somebody skips it.",
    sorted: { column: 2, descending: true },
    key: ({ turn }) => `${turn.conversation}#${turn.number}`,
    columns: [
      { title: "Conversation", cell: ({ turn }) => link(turn.conversation), by: ({ turn }) => turn.conversation },
      { title: "Turn", cell: ({ turn }) => String(turn.number), number: true },
      { title: "Given up", cell: ({ turn }) => time(turn.ended_at), by: ({ turn }) => turn.ended_at },
      { title: "Attempts", cell: ({ turn }) => String(turn.attempt), by: ({ turn }) => turn.attempt, number: true },
      { title: "Agent", cell: ({ turn }) => said(turn.agent), by: ({ turn }) => turn.agent },
      { title: "Cause", cell: ({ turn }) => said(turn.cause ?? "not told"), by: ({ turn }) => turn.cause },
      { title: "What was said", cell: ({ messages }) => messages.map((each) => words(each.text)) },
      { title: "Decide", cell: (letter) => decisions(letter, () => again()) },
    ],
  });
  const { again: look, stop } = await section(root, {
    title: "Dead letters",
    about: "Turns that were given up on. Mend the cause, then run them again; or drop what nobody needs any more.",
    body: letters.box,
    load: () => get("/api/deadletters?limit=1000"),
    paint: ({ dead_letters: all }) => letters.show(all),
    late: 15000, // they come with all that was said in them
  });
  again = look;
  return stop;
}

function decisions({ turn }, then) {
  const path = `/api/deadletters/${encodeURIComponent(`${turn.conversation}#${turn.number}`)}`;
  const name = named(turn.conversation);
  return element("span", { class: "actions" },
    action({
      name: "requeue",
      label: "Run again",
      asks: `What was said in turn ${turn.number} of ${name} is run again, behind what already waits there.`,
      does: () => post(`${path}/retry`),
      told: "It waits for its turn.",
      then,
    }),
    action({
      name: "drop",
      label: "Drop",
      danger: true,
      asks: `Turn ${turn.number} of ${name} is not listed any longer, and is forgotten in time; nobody answers it.`,
      does: () => post(`${path}/drop`),
      told: "Dropped.",
      then,
    }));
}
