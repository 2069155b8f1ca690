// What is seen is made here. Whatever people, agents and platforms wrote goes in as text, never as markup.

// element("button", {class: "quiet", onclick: act, "aria-label": "Pause"}, "Pause", element("b", {}, "!"))
// Attributes that are null, undefined or false are left out; children that are, too.
export function element(kind, attributes = {}, ...children) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

// A line at the foot of the page, for a while. `bad`: something did not work.
export function tell(text, { bad = false } = {}) {
  const line = element("p", { class: bad ? "bad" : "good" }, text);
  document.getElementById("told").append(line);
  setTimeout(() => line.remove(), bad ? 10000 : 4000);
}
