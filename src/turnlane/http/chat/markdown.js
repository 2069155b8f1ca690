// Markdown as elements. Everything that was written goes in as text: there is no way from it to markup, and a link leads
// only where a person may be led. What is not understood, or not ended yet, is shown as it was written.

const depthMost = 8;
const longCell = 24; // characters
const schemes = new Set(["http:", "https:", "mailto:", "tel:"]);

const fence = /^ {0,3}(`{3,}|~{3,}) *([^`]*)$/;
const heading = /^ {0,3}(#{1,6}) +(.*?)(?: +#+)? *$/;
const rule = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
const quote = /^ {0,3}> ?/;
const marker = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const underline = /^ *\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/;

const isBlank = (line) => !line.trim();
const indentOf = (line) => line.length - line.trimStart().length;
const isTable = (lines, at) => lines[at].includes("|") && lines[at + 1]?.includes("-") && underline.test(lines[at + 1]);

export function rendered(text) {
  return blocks(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"), 0);
}

function element(kind, ...children) {
  const made = document.createElement(kind);
  made.append(...children);
  return made;
}

function blocks(lines, depth) {
  const made = document.createDocumentFragment();
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) at += 1;
    else {
      const [block, end] = blockAt(lines, at, depth);
      made.append(block);
      at = end;
    }
  }
  return made;
}

// Each gives its element, and the line after it.
function blockAt(lines, at, depth) {
  const line = lines[at];
  if (fence.test(line)) return code(lines, at);
  if (heading.test(line)) {
    const [, marks, words] = heading.exec(line);
    return [element(`h${Math.min(6, marks.length + 2)}`, inline(words)), at + 1]; // the page has its own above them
  }
  if (rule.test(line)) return [element("hr"), at + 1];
  if (depth < depthMost && quote.test(line)) return quoted(lines, at, depth);
  if (depth < depthMost && marker.test(line)) return list(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at);
}

function code(lines, at) {
  const [, marks, language] = fence.exec(lines[at]);
  const end = lines.findIndex((line, place) => place > at && line.trim().length >= marks.length && !line.trim().replaceAll(marks[0], ""));
  const words = lines.slice(at + 1, end < 0 ? lines.length : end).join("\n");
  const shown = element("code", words);
  if (language) shown.dataset.language = language.trim();
  return [element("pre", shown), end < 0 ? lines.length : end + 1];
}

function quoted(lines, at, depth) {
  let end = at;
  while (end < lines.length && quote.test(lines[end])) end += 1;
  const inside = lines.slice(at, end).map((line) => line.replace(quote, ""));
  return [element("blockquote", blocks(inside, depth + 1)), end];
}

function list(lines, at, depth) {
  const isOrdered = (line) => /\d/.test(marker.exec(line)[2]);
  const indent = indentOf(lines[at]);
  const ordered = isOrdered(lines[at]);
  const made = element(ordered ? "ol" : "ul");
  if (ordered) made.start = Number.parseInt(lines[at].trim(), 10);
  const begins = (line) => marker.test(line) && !rule.test(line) && indentOf(line) <= indent + 1 && isOrdered(line) === ordered;
  while (at < lines.length && begins(lines[at])) {
    const inside = [lines[at].replace(marker, "")];
    const end = itemEnd(lines, at, indent);
    const own = lines.slice(at + 1, end);
    const least = Math.min(...own.filter((line) => !isBlank(line)).map(indentOf), indentOf(lines[at]) + 4);
    inside.push(...own.map((line) => line.slice(Math.min(least, indentOf(line)))));
    made.append(element("li", blocks(inside, depth + 1)));
    at = end;
  }
  return [made, at];
}

// What is farther in belongs to the item; so does what goes on without a blank line.
function itemEnd(lines, at, indent) {
  let end = at + 1;
  while (end < lines.length) {
    if (isBlank(lines[end])) {
      const next = lines.findIndex((line, place) => place > end && !isBlank(line));
      if (next < 0) return lines.length;
      if (indentOf(lines[next]) > indent + 1) end = next;
      else return marker.test(lines[next]) ? next : end;
    } else if (indentOf(lines[end]) <= indent + 1 && interrupts(lines, end)) return end;
    else end += 1;
  }
  return end;
}

function interrupts(lines, at) {
  const line = lines[at];
  return fence.test(line) || heading.test(line) || rule.test(line) || quote.test(line) || marker.test(line);
}

function table(lines, at) {
  const cells = (line) => line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  const sides = cells(lines[at + 1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "end") : ""));
  const row = (kind, line) => {
    const made = cells(line).map((cell, place) => {
      const one = element(kind, inline(cell));
      if (sides[place]) one.dataset.side = sides[place];
      if (cell.length > longCell) one.dataset.long = "";
      return one;
    });
    return element("tr", ...made);
  };
  let end = at + 2;
  while (end < lines.length && !isBlank(lines[end]) && lines[end].includes("|")) end += 1;
  const body = lines.slice(at + 2, end).map((line) => row("td", line));
  const made = element("div", element("table", element("thead", row("th", lines[at])), element("tbody", ...body)));
  made.className = "table";
  return [made, end];
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !interrupts(lines, end) && !isTable(lines, end)) end += 1;
  return [element("p", inline(lines.slice(at, end).join("\n"))), end];
}

// Inside a line. Each form is looked for where its first character stands, and only so far ahead.

const forms = {
  "\\": [[/\\([!-/:-@[-`{-~])/y, ([, character]) => character]],
  "*": [
    [/\*\*\*([^*\s](?:[^*]{0,2000}[^*\s])?)\*\*\*/y, ([, words], depth) => element("strong", element("em", inline(words, depth)))],
    [/\*\*(?!\s)((?:[^*\\]|\\.|\*(?!\*)){1,2000}?)\*\*/y, ([, words], depth) => element("strong", inline(words, depth))],
    [/\*(?![\s*])((?:[^*\\]|\\.|\*\*[^*]{1,500}\*\*){1,2000}?)\*(?!\*)/y, ([, words], depth) => !/\s$/.test(words) && element("em", inline(words, depth))],
  ],
  "_": [
    [/__(?!\s)([^_]{1,2000}|(?:[^_]|_(?!_)){1,2000}?)__(?!\w)/y, ([, words], depth) => element("strong", inline(words, depth))],
    [/_(?![\s_])([^_]{1,2000})_(?!\w)/y, ([, words], depth) => !/\s$/.test(words) && element("em", inline(words, depth))],
  ],
  "~": [[/~~(?!\s)([^~]{1,2000})~~/y, ([, words], depth) => element("del", inline(words, depth))]],
  "!": [[/!\[([^[\]]{0,500})\]\(([^\s()<>]{1,2000})(?:\s+"[^"]{0,200}")?\)/y, ([, words, url]) => link(url, words || url)]],
  "[": [
    [
      /\[((?:[^[\]\\]|\\.){1,500})\]\(<?([^\s()<>]{1,2000}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,500})?)>?(?:\s+"[^"]{0,200}")?\)/y,
      ([, words, url], depth) => link(url, inline(words, depth)),
    ],
  ],
  "<": [[/<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y, ([, url]) => link(url, url)]],
  h: [[/https?:\/\/[^\s<>"'`|]{1,2000}/y, bareLink]],
};

function inline(text, depth = 0) {
  const made = document.createDocumentFragment();
  let plain = "";
  let at = 0;
  while (at < text.length) {
    const [node, end] = (depth < depthMost && formAt(text, at, depth + 1)) || [text[at], at + 1];
    if (typeof node === "string") plain += node;
    else {
      made.append(plain, node);
      plain = "";
    }
    at = end;
  }
  made.append(plain);
  return made;
}

function formAt(text, at, depth) {
  const character = text[at];
  if (character === "`") return codeAt(text, at);
  if ((character === "_" || character === "h") && /\w/.test(text[at - 1] ?? "")) return null;
  for (const [form, make] of forms[character] ?? []) {
    form.lastIndex = at;
    const found = form.exec(text);
    const node = found && make(found, depth);
    if (node) return Array.isArray(node) ? [node[0], at + node[1]] : [node, at + found[0].length];
  }
  return null;
}

function codeAt(text, at) {
  const [marks] = /`+/.exec(text.slice(at, at + 100));
  const end = text.indexOf(marks, at + marks.length);
  if (end < 0 || text[end + marks.length] === "`") return [marks, at + marks.length];
  const words = text.slice(at + marks.length, end).replaceAll("\n", " ");
  return [element("code", words.replace(/^ (.*\S.*) $/, "$1")), end + marks.length];
}

// What ends a sentence ends no address.
function bareLink([found]) {
  let url = found.replace(/[.,;:!?*_~]+$/, "");
  while (url.endsWith(")") && url.split(")").length > url.split("(").length) url = url.slice(0, -1);
  return [link(url, url) ?? url, url.length];
}

function link(written, words) {
  let url;
  try {
    url = new URL(written); // none of ours: an address that begins nowhere leads nowhere
  } catch {
    return null;
  }
  if (!schemes.has(url.protocol)) return null;
  const made = element("a", words);
  made.href = url.href;
  made.target = "_blank";
  made.rel = "noopener noreferrer nofollow";
  return made;
}
