// What turns used and what it cost, by day and by whom, and how far the budgets are used up.

import { get } from "../api.js";
import { element } from "../dom.js";
import { bars } from "../plot.js";
import { section } from "../section.js";
import { table } from "../table.js";
import { badge, count, money, said } from "../words.js";

const DAY_MS = 86400000;
const SPANS = [["7", "7 days"], ["30", "30 days"], ["90", "90 days"]];
const BY = ["channel", "agent", "user", "model"];
const BUDGETS = { day: "everything", channel: "each channel", user: "each sender", session: "each session" };
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export async function show(root, place) {
  const days = Number(SPANS.find(([span]) => span === place.rest[0])?.[0] ?? 30);
  const plots = element("div", { class: "plots" });
  const budgets = budgetTable();
  const tables = Object.fromEntries(BY.map((name) => [name, sumTable(name)]));
  const daily = sumTable("day");
  const { stop } = await section(root, {
    title: "Usage and budgets",
    about: "What turns used, by days of universal time. The cost is by the prices of the settings.",
    controls: spans(days),
    body: [plots, budgets.box, ...Object.values(tables).map((each) => each.box), daily.box],
    load: () => load(days),
    paint: (told) => {
      plots.replaceChildren(...plotsOf(told.day, days));
      budgets.show(budgetsOf(told));
      for (const name of BY) tables[name].show(told[name]);
      daily.show([...told.day].reverse());
    },
    soon: 15000, // each look adds up all that was spent
    late: 60000,
  });
  return stop;
}

const dayBefore = (days) => new Date(Date.now() - days * DAY_MS).toISOString().slice(0, 10);

async function load(days) {
  const since = dayBefore(days - 1);
  const today = dayBefore(0);
  const of = async (query) => (await get(`/api/usage?${query}`)).usage;
  const [day, ...sums] = await Promise.all([
    of(`by=day&since=${since}`),
    ...BY.map((name) => of(`by=${name === "user" ? "channel,user" : name}&since=${since}`)),
  ]);
  const [todays, { settings }] = await Promise.all([of(`by=channel,user&since=${today}`), get("/api/settings")]);
  return {
    day, todays,
    limits: settings.filter(({ name, value }) => /^budgets\.\w+\.(tokens|cost)$/.test(name) && value !== null),
    ...Object.fromEntries(BY.map((name, at) => [name, sums[at]])),
  };
}

function spans(days) {
  return element("nav", { class: "tabs", "aria-label": "Of the last" }, SPANS.map(([span, title]) =>
    element("a", { href: `#/usage/${span}`, "aria-current": Number(span) === days ? "page" : null }, title)));
}

// A day on which nothing was used is a day, too.
function plotsOf(rows, days) {
  const found = new Map(rows.map((row) => [row.day, row]));
  const all = Array.from({ length: days }, (_, back) => dayBefore(days - 1 - back));
  const each = (parts) => all.map((day) => ({
    label: day.slice(5),
    parts: found.has(day) ? parts(found.get(day)) : parts(NONE),
  }));
  return [
    bars({
      title: "Tokens a day",
      names: ["input", "output"],
      bars: each((row) => [row.input_tokens, row.output_tokens]),
      format: (number) => short.format(number),
    }),
    bars({ title: "Cost a day", names: ["cost"], bars: each((row) => [row.cost]), format: money }),
    bars({
      title: "Turns a day",
      names: ["turns"],
      bars: each((row) => [row.turns]),
      format: (number) => short.format(number),
    }),
  ];
}

const NONE = { input_tokens: 0, output_tokens: 0, cost: 0, turns: 0 };

function sumTable(by) {
  const name = (row) => (by === "user" ? `${row.user} (${row.channel})` : row[by]) || "–";
  return table({
    caption: `By ${by}`,
    empty: `By ${by}: nothing was used in these days.`,
    key: name,
    sorted: by === "day" ? null : { column: 2, descending: true },
    columns: [
      { title: by[0].toUpperCase() + by.slice(1), cell: (row) => said(name(row)), by: name },
      { title: "Turns", cell: ({ turns }) => count(turns), by: ({ turns }) => turns, number: true },
      { title: "Input tokens", cell: (row) => count(row.input_tokens), by: (row) => row.input_tokens, number: true },
      {
        title: "of them cached",
        cell: (row) => count(row.cached_tokens),
        by: (row) => row.cached_tokens,
        number: true,
      },
      {
        title: "Output tokens",
        cell: (row) => count(row.output_tokens),
        by: (row) => row.output_tokens,
        number: true,
      },
      { title: "Cost", cell: ({ cost }) => money(cost), by: ({ cost }) => cost, number: true },
    ],
  });
}

// Budgets

function budgetTable() {
  return table({
    caption: "Budgets, and who has used most of each today",
    empty:
      "No budget is set. [budgets.day], [budgets.channel], [budgets.user] and [budgets.session] of the " +
      "settings limit tokens and cost.",
    key: ({ name }) => name,
    columns: [
      { title: "Budget", cell: ({ name }) => element("code", {}, name) },
      { title: "Of", cell: ({ of }) => of },
      { title: "Limit", cell: ({ limit, isCost }) => amount(limit, isCost), number: true },
      { title: "Used by", cell: ({ whose }) => said(whose ?? "see the sessions") },
      { title: "Used today", cell: usedOf, number: true },
      { title: "State", cell: ({ share }) => (share === null ? "–" : badge(...standing(share))) },
    ],
  });
}

const amount = (number, isCost) => (isCost ? money(number) : count(number));

function usedOf({ used, limit, isCost, share }) {
  if (used === null) return "–";
  const meter = element(
    "meter",
    { min: 0, max: 1, high: 0.8, optimum: 0, value: Math.min(1, share), "aria-label": "share used" },
  );
  return [amount(used, isCost), " ", meter, ` ${Math.round(share * 100)} %`];
}

const standing = (share) => (share >= 1 ? ["used up", "wrong"] : share >= 0.8 ? ["nearly", "warm"] : ["fine", "good"]);

function budgetsOf({ limits, todays }) {
  return limits.map(({ name, value }) => {
    const [, whose, unit] = name.split(".");
    const isCost = unit === "cost";
    const limit = Number(value);
    const most = mostUsed(todays, whose, isCost);
    const used = whose === "session" ? null : most.used;
    return {
      name,
      of: BUDGETS[whose] ?? whose,
      limit,
      isCost,
      used,
      whose: whose === "day" ? "all" : most.name,
      share: used === null || !limit ? null : used / limit,
    };
  });
}

function mostUsed(todays, whose, isCost) {
  const sums = new Map();
  for (const row of todays) {
    const name = { day: "all", channel: row.channel, user: `${row.user} (${row.channel})` }[whose] ?? "all";
    sums.set(name, (sums.get(name) ?? 0) + (isCost ? row.cost : row.input_tokens + row.output_tokens));
  }
  if (whose === "session") return { name: null, used: null };
  return [...sums].reduce(
    (best, [name, used]) => (used > best.used ? { name, used } : best),
    { name: "nobody yet", used: 0 },
  );
}
