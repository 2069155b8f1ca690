// What the server is asked. Every refusal becomes an Error that says what to do next.

let me = { role: "operator", csrf: null, open: true };

// Who is asking, and whether this page may press buttons.
export async function introduce() {
  me = await get("/api/me");
  return me;
}

export const mayAct = () => me.role === "operator";

export const get = (path) => ask("GET", path);
export const post = (path, body = {}) => ask("POST", path, body);
export const put = (path, body) => ask("PUT", path, body);
export const remove = (path) => ask("DELETE", path);

// The path of a conversation: its key is one segment, however many parts it has.
export const conversationPath = (key, verb = "") => `/api/conversations/${encodeURIComponent(key)}${verb}`;

async function ask(method, path, body) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && me.csrf) headers["x-turnlane-csrf"] = me.csrf;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Error("The server cannot be reached; it is tried again by itself.");
  }
  if (answer.status === 401) toLogin();
  const said = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(said?.detail ?? `The server answered ${answer.status}.`);
  return said;
}

export function toLogin() {
  location.assign(`/console/login?to=${encodeURIComponent(location.pathname + location.hash)}`);
}
