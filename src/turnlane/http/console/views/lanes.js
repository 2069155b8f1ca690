// Every conversation a lane.

import { get } from "../api.js";
import { element } from "../dom.js";

export async function show(root) {
  const { lanes } = await get("/api/lanes?limit=1000");
  root.append(element("ul", {}, lanes.map((lane) => element("li", {}, `${lane.conversation} ${lane.state}`))));
}
