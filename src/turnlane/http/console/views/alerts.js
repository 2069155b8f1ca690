// What is wrong now, since when, and what to do about it.

import { get } from "../api.js";
import { section } from "../section.js";
import { table } from "../table.js";
import { badge, said, since, time } from "../words.js";

const TONES = { critical: "wrong", warning: "warm", info: "quiet" };

export async function show(root) {
  const alerts = table({
    caption: "Alerts that fire now",
    empty: "Nothing is wrong. An alert is here as long as what its rule watches is beyond its limit.",
    key: ({ alert, since: at, text }) => `${alert} ${at} ${text}`,
    columns: [
      ...columns,
      { title: "For", cell: ({ since: at }) => since(at), number: true },
      { title: "What to do", cell: ({ next_step: step }) => said(step ?? "–") },
    ],
  });
  const recent = table({
    caption: "Alerts that fired lately",
    empty: "None fired lately.",
    key: (each) => JSON.stringify(each),
    columns: [...columns, { title: "Over", cell: ({ cleared_at: at }) => time(at) }],
  });
  const { stop } = await section(root, {
    title: "Alerts",
    about: "The same rules as in the Prometheus file that comes with Turnlane, judged by this process.",
    body: [alerts.box, recent.box],
    load: () => get("/api/alerts"),
    paint: (told) => {
      alerts.show(told.alerts);
      recent.show(told.recent ?? []);
    },
    late: 5000,
  });
  return stop;
}

const columns = [
  { title: "Alert", cell: ({ alert }) => said(alert), by: ({ alert }) => alert },
  {
    title: "Severity",
    cell: ({ severity }) => badge(severity, TONES[severity] ?? "warm"),
    by: ({ severity }) => severity,
  },
  { title: "What", cell: ({ text }) => said(text) },
  { title: "Value", cell: ({ value, threshold }) => said(`${shown(value)} of ${shown(threshold)}`), number: true },
  { title: "Since", cell: ({ since: at }) => time(at), by: ({ since: at }) => at },
];

const shown = (value) => (typeof value === "number" ? Number(value.toPrecision(4)) : (value ?? "–"));
