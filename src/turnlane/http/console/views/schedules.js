import { element } from "../dom.js";

export function show(root) {
  root.append(element("p", {}, "Not yet."));
}
