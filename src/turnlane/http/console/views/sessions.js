// What agents remember of conversations.

import { action } from "../actions.js";
import { conversationPath, get, post } from "../api.js";
import { section } from "../section.js";
import { table } from "../table.js";
import { costOf, count, link, money, named, said, time, tokensOf } from "../words.js";

export async function show(root) {
  let again = () => null;
  const sessions = table({
    caption: "Sessions, those used last at first",
    empty: "No agent remembers anything yet. One does from its first answer on, if it gives a session.",
    key: ({ conversation, agent }) => `${agent} ${conversation}`,
    columns: [
      {
        title: "Conversation",
        cell: ({ conversation }) => link(conversation),
        by: ({ conversation }) => conversation,
      },
      { title: "Agent", cell: ({ agent }) => said(agent), by: ({ agent }) => agent },
      { title: "Session", cell: ({ handle }) => said(handle), by: ({ handle }) => handle },
      { title: "Turns", cell: ({ turns }) => count(turns), by: ({ turns }) => turns, number: true },
      {
        title: "Tokens",
        cell: ({ usage }) => count(tokensOf(usage)),
        by: ({ usage }) => tokensOf(usage),
        number: true,
      },
      { title: "Cost", cell: ({ usage }) => money(costOf(usage)), by: ({ usage }) => usage.cost, number: true },
      { title: "Used", cell: ({ updated_at: at }) => time(at), by: ({ updated_at: at }) => at },
      { title: "Machine", cell: ({ machine }) => said(machine ?? "any"), by: ({ machine }) => machine },
      { title: "Do", cell: (each) => renewing(each, () => again()) },
    ],
  });
  const { again: look, stop } = await section(root, {
    title: "Sessions",
    about: "The handles by which agents find their memory of a conversation again.",
    body: sessions.box,
    load: () => get("/api/sessions?limit=1000"),
    paint: ({ sessions: all }) => sessions.show(all),
  });
  again = look;
  return stop;
}

function renewing({ conversation }, then) {
  return action({
    name: "renew", label: "New session",
    asks: `The next turn of ${named(conversation)} begins a session of its own; the agent forgets what it remembers.`,
    does: () => post(conversationPath(conversation, "/renew")),
    told: "The next turn begins a new session.",
    then,
  });
}
