// Buttons that change something. Each asks first, in one sentence that says what will happen, and tells the outcome.

import { mayAct } from "./api.js";
import { element, tell } from "./dom.js";

const LOOK_ONLY = "You may look, not act: log in as an operator.";
const NOTHING_DONE = "There was nothing to do; nothing was changed.";

// { name, label, asks, does, ready, why, fields, danger, told, then }
//   asks, fields: the sentence, and what can be filled in; or functions that make them when it is pressed
//   does: takes the fields' values, returns a promise of the server's answer
//   ready, why: whether it makes sense now, and if not, why
//   told: what to say when it is done; then: called after it, whatever came of it
export function action(wanted) {
  const button = element("button", {
    type: "button",
    "data-act": wanted.name,
    class: wanted.danger ? "danger" : null,
  },
    wanted.label);
  button.addEventListener("click", () => ask(wanted, button));
  enable(button, wanted.ready ?? true, wanted.why);
  return button;
}

// For buttons that stay while what they are about changes.
export function enable(button, ready, why) {
  const isAllowed = mayAct();
  button.disabled = !(ready && isAllowed);
  const reason = isAllowed ? (ready ? null : why) : LOOK_ONLY;
  if (reason) button.title = reason;
  else button.removeAttribute("title");
}

// Opens the one dialog of the page. Enter does it, Escape does not; the focus goes back to where it was.
export function ask(wanted, opener) {
  const dialog = document.getElementById("confirm");
  if (dialog.open) return;
  const fields = (typeof wanted.fields === "function" ? wanted.fields() : wanted.fields ?? []).map(field);
  const problem = element("p", { class: "trouble", role: "alert" });
  const go = element("button", { class: wanted.danger ? "main danger" : "main", type: "submit" },
    wanted.word ?? wanted.label);
  const form = element("form", { method: "dialog" },
    element("h2", { id: "asked" }, wanted.title ?? wanted.label),
    element("p", { class: "asks" }, typeof wanted.asks === "function" ? wanted.asks() : wanted.asks),
    fields.map((each) => each.row),
    problem,
    element("p", { class: "choices" },
      go,
      element("button", { type: "button", onclick: () => dialog.close() }, "Not now")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    problem.textContent = "";
    const values = Object.fromEntries(fields.map((each) => [each.name, each.value()]));
    try {
      const answer = await wanted.does(values);
      dialog.close();
      const told = typeof wanted.told === "function" ? wanted.told(answer, values) : wanted.told;
      tell(answer?.done === false ? NOTHING_DONE : told ?? "Done.");
      await wanted.then?.(answer);
    } catch (error) {
      problem.textContent = error.message;
      go.disabled = false;
      if (!dialog.open) tell(error.message, { bad: true }); // closed meanwhile: it must be heard all the same
    }
    back(opener);
  });
  dialog.setAttribute("aria-labelledby", "asked");
  dialog.replaceChildren(form);
  dialog.onclose = () => back(opener);
  dialog.showModal();
  (fields[0]?.input ?? go).focus();
}

// What was pressed may have been painted anew, or may make no sense any more.
function back(opener) {
  if (document.getElementById("confirm").open) return;
  if (opener?.isConnected && !opener.disabled) opener.focus();
  else if ([null, document.body].includes(document.activeElement)) document.getElementById("main").focus();
}

// { name, label, kind, value, options, hint, needed }
function field({ name, label, kind = "text", value = "", options = [], hint, needed = false, pattern }) {
  const id = `field-${name}`;
  const input = made(
    kind,
    { id, name, required: needed, pattern, "aria-describedby": hint ? `${id}-hint` : null },
    options,
  );
  if (kind === "check") input.checked = Boolean(value);
  else input.value = value;
  const row = element("p", { class: `field ${kind}` },
    kind === "check" ? input : null,
    element("label", { for: id }, label),
    kind === "check" ? null : input,
    hint ? element("small", { id: `${id}-hint` }, hint) : null);
  return { name, row, input, value: () => (kind === "check" ? input.checked : input.value) };
}

function made(kind, attributes, options) {
  if (kind === "area") return element("textarea", { ...attributes, rows: 4 });
  if (kind === "select") {
    return element("select", attributes, options.map(([value, text]) => element("option", { value }, text)));
  }
  return element(
    "input",
    { ...attributes, type: kind === "check" ? "checkbox" : "text", autocomplete: "off", spellcheck: "false" },
  );
}
