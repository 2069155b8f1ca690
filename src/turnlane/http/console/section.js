// What sections share: a heading, a line for trouble, and a gentle look again and again.

import { element } from "./dom.js";
import { keepFresh } from "./fresh.js";

// { title, about, controls, load, paint }: `paint(data, again)` is called with what `load` brought, if it is new.
export async function section(root, { title, about, controls = null, body, load, paint, soon = 2000, late = 10000 }) {
  const trouble = element("p", { class: "trouble", role: "alert" });
  let seen = null;
  let fresh = null;
  const again = () => fresh?.again() ?? Promise.resolve();

  async function look() {
    try {
      const data = await load();
      trouble.textContent = "";
      const text = JSON.stringify(data);
      if (text === seen) return false;
      seen = text;
      paint(data, again);
      return true;
    } catch (error) {
      trouble.textContent = seen === null ? error.message : `${error.message} What you see is older.`;
      throw error;
    }
  }

  root.append(
    element("header", { class: "head" },
      element("h2", {}, title),
      about ? element("p", { class: "about" }, about) : null,
      controls ?? [],
      trouble),
    ...[body].flat());
  await look().catch(() => null); // it has said so, and looks again
  fresh = keepFresh(look, { soon, late });
  return { again, stop: fresh.stop };
}
