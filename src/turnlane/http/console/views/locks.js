// Leases that are held now.

import { get } from "../api.js";
import { section } from "../section.js";
import { table } from "../table.js";
import { badge, link, said, since, time } from "../words.js";

const LONG_MS = 5 * 60 * 1000;

export async function show(root) {
  const locks = table({
    caption: "Locks, the oldest at first",
    empty: "Nothing is held. A worker holds a conversation while it runs a turn or sends.",
    key: ({ conversation, kind }) => `${kind} ${conversation}`,
    sorted: { column: 4, descending: false },
    columns: [
      {
        title: "Conversation",
        cell: ({ conversation }) => link(conversation),
        by: ({ conversation }) => conversation,
      },
      {
        title: "For",
        cell: ({ kind }) => ({ turn: "a turn", out: "sending", tick: "a schedule" })[kind],
        by: ({ kind }) => kind,
      },
      { title: "Worker", cell: ({ worker }) => said(worker), by: ({ worker }) => worker },
      { title: "Epoch", cell: ({ epoch }) => String(epoch), by: ({ epoch }) => epoch, number: true },
      { title: "Since", cell: ({ since: at }) => time(at), by: ({ since: at }) => at },
      { title: "Held for", cell: ({ since: at }) => since(at), number: true },
      { title: "Note", cell: ({ mark }) => mark.map((each) => badge(...each)) },
    ],
  });
  const { stop } = await section(root, {
    title: "Locks",
    about:
      "Who holds which conversation. A lock of a worker that is gone is taken over by itself; one that " +
      "lasts over five minutes may be an agent that hangs: open its story to stop it.",
    body: locks.box,
    load: async () => (await get("/api/locks")).locks.map((lock) => ({
      ...lock,
      worker_alive_until: null,
      mark: marks(lock),
    })),
    paint: (rows) => locks.show(rows),
    late: 4000,
  });
  return stop;
}

function marks(lock) {
  const found = [];
  if (Date.now() - new Date(lock.since) > LONG_MS) found.push(["over 5 min", "warm"]);
  if (!lock.worker_alive_until || new Date(lock.worker_alive_until) < Date.now()) found.push(["worker gone", "wrong"]);
  return found.length ? found : [["fine", "good"]];
}
