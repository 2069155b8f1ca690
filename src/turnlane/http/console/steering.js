// The buttons above a story: what each asks, and does.

import { laneOf } from "./story.js";
import { named } from "./words.js";

const BUSY = [
  ["", "as its route says"],
  ["collect", "collect: all of them are the next turn"],
  ["queue", "queue: each is a turn of its own"],
  ["interrupt", "interrupt: the run is ended and starts anew with them"],
  ["steer", "steer: the running agent is told"],
  ["rollback", "rollback: the run is ended, its words forgotten"],
  ["reject", "reject: they are refused"],
];

const told = (page) => laneOf(page.story, "turn")?.on_busy ?? "";

const DURATION = {
  name: "for",
  label: "For how long",
  hint: "Like 30m, 2h or 1d. Empty: until somebody resumes it.",
};
const lasting = (values) => (values.for.trim() ? { for: values.for.trim() } : {});

export function steeringOfTurns(page) {
  const name = named(page.key);
  return {
    pause: {
      label: "Pause",
      asks: `The agent starts nothing more in ${name}; what runs goes on, and what people write is kept.`,
      fields: [DURATION],
      does: (values) => page.steer("pause", lasting(values)),
      told: "Paused.",
    },
    resume: {
      label: "Resume",
      asks: `The agent goes on in ${name}, whether it was paused or parked, with all that waits.`,
      does: () => page.steer("resume"),
      told: "It goes on.",
    },
    retry: {
      label: "Retry now",
      asks: "The next attempt of the turn that failed starts at once, not when its pause is over.",
      does: () => page.steer("retry"),
      told: "The next attempt starts.",
    },
    skip: {
      label: "Skip",
      danger: true,
      asks: "The turn that runs or waits is given up and becomes a dead letter; what is behind it goes on.",
      does: () => page.steer("skip"),
      told: "Given up; it is with the dead letters.",
    },
    stop: {
      label: "Stop",
      danger: true,
      asks: `All that was said in ${name} and not answered is set aside, also the turn that runs.`,
      does: () => page.steer("stop"),
      told: "Stopped.",
    },
    renew: {
      label: "New session",
      asks: "The next turn begins a session of its own; the agent forgets what it remembers of this conversation.",
      does: () => page.steer("renew"),
      told: "The next turn begins a new session.",
    },
    policy: {
      label: "When busy",
      asks: "What becomes of messages that come while a turn runs, in this conversation alone.",
      fields: () => [{ name: "on_busy", label: "They are treated", kind: "select", options: BUSY, value: told(page) }],
      does: (values) => page.steer("policy", { on_busy: values.on_busy || null }),
      word: "Set",
      told: "Set, from now on.",
    },
  };
}

export function steeringOfOutbox(page) {
  const outbox = { outbox: true };
  return {
    pause: {
      label: "Pause sending",
      asks: "Nothing more leaves this conversation; what is answered meanwhile waits in its outbox.",
      fields: [DURATION],
      does: (values) => page.steer("pause", { ...outbox, ...lasting(values) }),
      told: "Sending is paused.",
    },
    resume: {
      label: "Resume sending",
      asks: "What waits in the outbox is sent, also a reply that is held because it may have arrived.",
      does: () => page.steer("resume", outbox),
      told: "Sending goes on.",
    },
    retry: {
      label: "Send now",
      asks: "The delivery that failed is sent at once, not when its pause is over.",
      does: () => page.steer("retry", outbox),
      told: "The next attempt starts.",
    },
    skip: {
      label: "Give up sending",
      danger: true,
      asks: "The delivery that is being sent or waits is kept as failed; what is behind it goes on.",
      does: () => page.steer("skip", outbox),
      told: "Given up; it is kept as failed.",
    },
  };
}
