// Folds what a test wrote down, line by line, and says where it differs from the truth.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [fold_file, lines_file] = process.argv.slice(2);
const { STATES, emptyBoard, fold, openSpans, stateOf } = await import(pathToFileURL(fold_file));

let board = emptyBoard();
let history = "";
let compared = 0;
const wrong = [];

function checkOrder(lane, now) {
  const spans = [...lane.past];
  for (const [state, from, to] of openSpans(lane, now)) spans.push(state, from, to);
  for (let i = 0; i < spans.length; i += 3) {
    const [, from, to] = spans.slice(i, i + 3);
    if (from > to || (i > 0 && from < spans[i - 1])) wrong.push(`the past of ${lane.key} is in no order`);
  }
}

for (const line of readFileSync(lines_file, "utf8").split("\n").filter(Boolean)) {
  const { kind, data } = JSON.parse(line);
  if (kind === "history") {
    board = emptyBoard();
    history = data;
  } else if (kind === "truth") {
    if (board.lanes.size !== data.lanes.length) wrong.push(`${board.lanes.size} lanes, not ${data.lanes.length}`);
    for (const [key, ...expected] of data.lanes) {
      const lane = board.lanes.get(key);
      const seen = lane && [STATES[stateOf(lane, data.at)], lane.pending, lane.attempt, lane.epoch, lane.agent, lane.owner];
      compared += 1;
      if (JSON.stringify(seen) !== JSON.stringify(expected)) wrong.push(`${history}: ${key} is ${seen}, not ${expected}`);
      if (lane) checkOrder(lane, data.at);
    }
  } else {
    fold(board, data, { snapshot: kind === "snapshot" });
  }
}
console.log(JSON.stringify({ compared, wrong: wrong.slice(0, 5) }));
