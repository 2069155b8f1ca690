// What an operator decides about one delivery, in its story and in the outbox.

import { action } from "./actions.js";
import { post } from "./api.js";
import { element } from "./dom.js";

const HELD = "This reply is sent although it may have arrived; then what waits behind it.";
const FAILED = "This reply is sent again under the same key, after what already waits.";

export function decisionsOn(delivery, then) {
  const path = `/api/outbox/${encodeURIComponent(delivery.id)}`;
  const canResend = delivery.held || delivery.state === "failed" || delivery.state === "dropped";
  const canDrop = delivery.state === "queued" || delivery.state === "failed";
  if (!canResend && !canDrop) return null;
  return element("span", { class: "actions" },
    canResend ? action({
      name: "resend",
      label: "Send again",
      asks: delivery.held ? HELD : FAILED,
      does: () => post(`${path}/resend`),
      told: "It is sent again.",
      then,
    }) : null,
    canDrop ? action({
      name: "drop",
      label: "Drop",
      danger: true,
      asks: "This reply is not sent, and what is behind it goes on.",
      does: () => post(`${path}/drop`),
      told: "Dropped.",
      then,
    }) : null);
}
