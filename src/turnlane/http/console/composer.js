// Where an operator answers by hand. It stays as it is, with what is typed in it, while the story above changes.

import { ask, enable } from "./actions.js";
import { conversationPath, post } from "./api.js";
import { element } from "./dom.js";

const TAKES_OVER = "The person gets these words, and the agent falls silent for a while; Resume ends that.";
const SAYS_TOO = "The person gets these words; the agent goes on and is told of them.";

export function composer(key, then) {
  const called = { placeholder: "Answer by hand…", "aria-label": "Answer by hand" };
  const field = element("textarea", { id: "by-hand", rows: 2, ...called });
  const silent = element("input", { type: "checkbox", id: "takes-over", checked: true });
  const send = element("button", { type: "submit", class: "main", "data-act": "say" }, "Say it");
  let draft = token(); // said again under the same id, it is said once
  const settled = () => enable(send, field.value.trim() !== "", "Write something first.");
  field.addEventListener("input", settled);
  const form = element("form", { class: "composer", "aria-label": "Answer by hand" }, field,
    element("div", { class: "beside" },
      element("label", { for: "takes-over" },
        silent,
        element("span", {}, "take over: the agent falls silent for a while")), send));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (send.disabled) return;
    const text = field.value;
    ask({
      label: "Say it",
      title: "Answer by hand",
      asks: silent.checked ? TAKES_OVER : SAYS_TOO,
      does: () => post(conversationPath(key, "/say"), { text, id: draft, takeover: silent.checked }),
      told: ({ state, cause }) => state === "failed" ? `It was not sent: ${cause}` : "Said.",
      then: () => {
        draft = token();
        if (field.value === text) field.value = "";
        settled();
        return then();
      },
    }, field);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  settled();
  return form;
}

// Not randomUUID: that one is only there where the page came over TLS or loopback.
function token() {
  const bytes = [...crypto.getRandomValues(new Uint8Array(16))];
  return bytes.map((each) => each.toString(16).padStart(2, "0")).join("");
}
