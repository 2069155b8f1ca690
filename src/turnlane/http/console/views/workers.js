// Who runs turns.

import { get } from "../api.js";
import { section } from "../section.js";
import { table } from "../table.js";
import { badge, count, said, time } from "../words.js";

export async function show(root) {
  const workers = table({
    caption: "Workers",
    empty: "No worker. Nothing is answered until one starts: turnlane run, or turnlane worker.",
    key: ({ id }) => id,
    columns: [
      { title: "Worker", cell: ({ id }) => said(id), by: ({ id }) => id },
      { title: "Machine", cell: ({ machine }) => said(machine || "–"), by: ({ machine }) => machine },
      {
        title: "State",
        cell: ({ live }) => (live ? badge("live", "good") : badge("gone", "wrong")),
        by: ({ live }) => String(live),
      },
      { title: "Holds", cell: ({ lanes }) => count(lanes), by: ({ lanes }) => lanes, number: true },
      { title: "Known to live until", cell: ({ alive_until: at }) => time(at), by: ({ alive_until: at }) => at },
    ],
  });
  const { stop } = await section(root, {
    title: "Workers",
    about: "Processes that run turns and send. What a worker held that is gone is taken over by another.",
    body: workers.box,
    load: () => get("/api/workers"),
    paint: ({ workers: all }) => workers.show(all),
    late: 5000,
  });
  return stop;
}
