// What a lane is doing, in words.

import { GATHERING, IDLE, PARKED, PAUSED, READY, RUNNING, WAITING, stateOf } from "./fold.js";
import { duration, moment } from "./time.js";

export const storyOf = (lane) => `#/conversation/${encodeURIComponent(lane.key)}`;

export function why(lane, now) {
  const says = {
    [IDLE]: () => lane.why ?? "",
    [GATHERING]: () => `more may come: starts in ${duration(lane.runsAt - now)}`,
    [READY]: () => (lane.awaits ? `is left to the machine ${lane.awaits}, which has its session` : "waits for a free worker"),
    [RUNNING]: () => `${lane.attempt > 1 ? `attempt ${lane.attempt}, ` : ""}worker ${(lane.owner ?? "").slice(0, 8)}`,
    [WAITING]: () => [lane.why, lane.runsAt === null ? null : `again in ${duration(lane.runsAt - now)}`].filter(Boolean).join("; "),
    [PAUSED]: () => [lane.why, lane.pausedUntil === null ? "until somebody resumes it" : `until ${moment(lane.pausedUntil)}`].filter(Boolean).join(", "),
    [PARKED]: () => lane.why ?? "waits for an operator",
  }[stateOf(lane, now)]();
  return lane.gone ? `${says ? `${says}; ` : ""}nothing can be sent: ${lane.gone}` : says;
}
