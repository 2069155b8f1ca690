// Puts the chat on a page of any site, by one tag: a button, and a panel that is a page of ours. It needs nothing of the
// page around, leaves nothing in it but an element and the name Turnlane, and keeps out of its style and its reach.

(() => {
  "use strict";
  const tag = document.currentScript;
  if (!tag || window.Turnlane) return;

  const { channel = "web", title = "", position = "right", visitor, signature, expires } = tag.dataset;
  const given = tag.dataset.colour ?? tag.dataset.color ?? "";
  const colour = /^#[0-9a-f]{6}$/i.test(given) ? given : "#1f7a5c";
  const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
  const ink = 0.3 * red + 0.59 * green + 0.11 * blue > 150 ? "#101513" : "#ffffff";
  const ours = new URL(tag.src).origin;
  const side = position === "left" ? "left" : "right";
  const name = title || "Chat";

  // Important, and in pixels, as nothing of the page around shall reach in here; no style element, which its policy may
  // forbid.
  const style = new CSSStyleSheet();
  style.replaceSync(`
    :host { all: initial !important; position: fixed !important; inset: auto !important; bottom: 0 !important;
      ${side}: 0 !important; z-index: 2147483000 !important; color-scheme: light dark !important; }
    [hidden] { display: none !important; }
    button { position: fixed; bottom: max(20px, env(safe-area-inset-bottom)); ${side}: 20px; display: grid;
      place-content: center; width: 56px; height: 56px; margin: 0; padding: 0; border: 0; border-radius: 50%;
      background: ${colour}; color: ${ink}; box-shadow: 0 4px 16px rgb(0 0 0 / 28%); cursor: pointer; }
    button:hover { filter: brightness(1.08); }
    button:focus-visible { outline: 3px solid ${colour}; outline-offset: 3px; box-shadow: 0 0 0 3px #fff; }
    svg { width: 28px; height: 28px; fill: none; stroke: currentColor; stroke-width: 1.9; stroke-linecap: round;
      stroke-linejoin: round; }
    .badge { position: absolute; top: -4px; right: -4px; min-width: 20px; height: 20px; padding: 0 4.8px;
      border: 2px solid #fff; border-radius: 12.8px; box-sizing: content-box; background: #c62828; color: #fff;
      font: 700 13px/20px system-ui, sans-serif; text-align: center; }
    iframe { position: fixed; bottom: 92px; ${side}: 20px; width: 400px; height: min(640px, calc(100dvh - 112px));
      border: 0; border-radius: 16px; background: light-dark(#f7f8f7, #111513); color-scheme: light dark;
      box-shadow: 0 8px 40px rgb(0 0 0 / 28%), 0 0 0 1px rgb(128 128 128 / 22%); }
    @media (max-width: 480px), (max-height: 416px) {
      iframe { inset: 0; width: 100%; height: 100%; border-radius: 0; }
      button[aria-expanded="true"] { display: none; }
    }
    @media (prefers-reduced-motion: no-preference) {
      iframe:not([hidden]) { animation: rise 0.18s ease-out; }
      @keyframes rise { from { opacity: 0; transform: translateY(12px); } }
    }
    @media print { :host { display: none !important; } }`);

  function shape(path) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("d", path);
    svg.setAttribute("viewBox", "0 0 24 24");
    svg.setAttribute("aria-hidden", "true");
    svg.append(line);
    return svg;
  }

  const speech = shape("M12 4c4.7 0 8.5 3.1 8.5 7s-3.8 7-8.5 7c-1 0-2-.1-2.9-.4L4.5 20l1.3-3.7C4.3 15 3.5 13.1 3.5 11c0-3.9 3.8-7 8.5-7z");
  const down = shape("M6 9.5l6 6 6-6");
  const badge = document.createElement("span");
  badge.className = "badge";
  const button = document.createElement("button");
  button.type = "button";
  const frame = document.createElement("iframe");
  frame.src = `${ours}/embed?channel=${encodeURIComponent(channel)}`;
  frame.title = name;
  frame.allow = "clipboard-write";
  frame.referrerPolicy = "no-referrer";

  let isOpen = false;
  let unread = 0;

  function show() {
    frame.hidden = !isOpen;
    badge.hidden = isOpen || !unread;
    badge.textContent = unread > 9 ? "9+" : String(unread);
    button.replaceChildren(isOpen ? down : speech, badge);
    button.setAttribute("aria-expanded", String(isOpen));
    const label = isOpen ? `Close ${name}` : unread ? `Open ${name}, ${unread} unread` : `Open ${name}`;
    button.setAttribute("aria-label", label);
  }

  // Only our own page is told anything, above all who the visitor is.
  const tell = (what, more) => frame.contentWindow?.postMessage({ turnlane: what, ...more }, ours);

  function turn(open) {
    if (isOpen === open) return;
    isOpen = open;
    show();
    tell(open ? "open" : "closed");
    if (open) frame.focus();
    else button.focus();
  }

  button.addEventListener("click", () => turn(!isOpen));
  window.addEventListener("message", ({ source, origin, data }) => {
    if (source !== frame.contentWindow || origin !== ours) return;
    if (data?.turnlane === "ready") tell("begin", { visitor, signature, expires, title, colour: given, isOpen });
    else if (data?.turnlane === "close") turn(false);
    else if (data?.turnlane === "unread" && data.count !== unread) {
      unread = Number(data.count) || 0;
      show();
    }
  });

  function begin() {
    const place = document.createElement("turnlane-chat");
    const inside = place.attachShadow({ mode: "closed" });
    inside.adoptedStyleSheets = [style];
    show();
    inside.append(frame, button);
    document.body.append(place);
  }

  Object.defineProperty(window, "Turnlane", { value: Object.freeze({ open: () => turn(true), close: () => turn(false) }) });
  if (document.body) begin();
  else document.addEventListener("DOMContentLoaded", begin);
})();
