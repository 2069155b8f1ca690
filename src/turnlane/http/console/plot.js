// Small plots: one bar a day, in parts that stand on each other. The table below each tells the same in numbers.

import { element } from "./dom.js";

const WIDTH = 420;
const HEIGHT = 140;
const LEFT = 44;
const BOTTOM = 20;
const SVG = "http://www.w3.org/2000/svg";

// bars: [{ label, parts: [number…] }]; `names` of the parts, `format` of a number.
export function bars({ title, names, bars: all, format }) {
  const highest = Math.max(...all.map((bar) => total(bar)));
  const top = roundUp(highest);
  const height = HEIGHT - BOTTOM;
  const wide = (WIDTH - LEFT) / Math.max(1, all.length);
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${spoken(all, format)}` },
  );
  for (const share of [0, 0.5, 1]) {
    const y = height - share * (height - 10);
    drawing.append(
      svg("line", { x1: LEFT, x2: WIDTH, y1: y, y2: y, class: "grid" }),
      text(LEFT - 6, y + 4, format(top * share), "end"),
    );
  }
  all.forEach((bar, place) => drawing.append(column(
    bar,
    { x: LEFT + place * wide, wide, height, top, names, format },
  )));
  const marked = Math.ceil(all.length / 5);
  all.forEach((bar, place) => place % marked === 0 && drawing.append(text(
    LEFT + (place + 0.5) * wide,
    HEIGHT - 5,
    bar.label,
    "middle",
  )));
  return element("figure", { class: "plot" },
    element("figcaption", {}, title, names.length > 1 ? legend(names) : null),
    drawing);
}

function column(bar, { x, wide, height, top, names, format }) {
  const group = svg("g", {});
  const told = svg("title", {});
  told.textContent = `${bar.label}: ${bar.parts.map((part, place) => `${format(part)} ${names[place]}`).join(", ")}`;
  group.append(told, svg("rect", { x, y: 0, width: wide, height, class: "hit" }));
  let y = height;
  bar.parts.forEach((part, place) => {
    const tall = top ? (part / top) * (height - 10) : 0;
    y -= tall;
    group.append(svg("rect", { x: x + wide * 0.15, y, width: wide * 0.7, height: tall, class: `part${place}` }));
  });
  return group;
}

const legend = (names) => names.map((name, place) => element("span", { class: `key part${place}` }, name));

function text(x, y, words, anchor) {
  const made = svg("text", { x, y, "text-anchor": anchor });
  made.textContent = words;
  return made;
}

function svg(kind, attributes) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

const total = (bar) => bar.parts.reduce((sum, part) => sum + part, 0);

function spoken(all, format) {
  const highest = all.reduce((best, bar) => (total(bar) > total(best) ? bar : best), all[0]);
  return `${all.length} days, most on ${highest.label} with ${format(total(highest))}`;
}

// 1, 2, 2.5 or 5 times a power of ten, so that the axis reads well.
function roundUp(number) {
  if (number <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= number);
}
