/* What every page shares: who you are, keys, asking the desk, your last decision; and the queue's own keys. */

const field = document.getElementById("person");
field.value = localStorage.getItem("person") ?? "";
/** The desk is told who looks, so that people spread over the queue; what is decided names its person by itself. */
const tell = () => { document.cookie = `person=${encodeURIComponent(field.value.trim())}; path=/; samesite=strict`; };
tell();
field.addEventListener("input", () => { localStorage.setItem("person", field.value.trim()); tell(); });
field.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === "Escape") field.blur(); });

/** Your name, or "" after asking for it. */
export function person() {
  if (!field.value.trim()) {
    field.focus();
    toast("Write your name first, top right: every decision is somebody's.");
  }
  return field.value.trim();
}

let fading;
export function toast(text) {
  const place = document.getElementById("toast");
  place.textContent = text;
  place.classList.add("on");
  clearTimeout(fading);
  fading = setTimeout(() => place.classList.remove("on"), 4000);
}

/** The answer's status and JSON; what is no answer at all is status 0. */
export async function ask(path, body, headers = { "content-type": "application/json" }) {
  const asked = body === undefined ? {} : { method: "POST", headers, body: body instanceof Blob ? body : JSON.stringify(body) };
  try {
    const answer = await fetch(path, asked);
    const text = await answer.text();
    try {
      return [answer.status, JSON.parse(text)];
    } catch {
      return [answer.status, { error: text.trim() }];
    }
  } catch {
    return [0, { error: "The desk does not answer. Nothing is lost: what you wrote stays here." }];
  }
}

/** Runs actions by key, but not while somebody writes; Escape and Ctrl+Enter are heard everywhere. */
export function keys(actions) {
  document.addEventListener("keydown", (event) => {
    const writing = event.target.matches("input, textarea, select");
    const name = event.ctrlKey && event.key === "Enter" ? "Ctrl+Enter" : event.key;
    if (event.altKey || event.metaKey || (event.ctrlKey && name !== "Ctrl+Enter")) return;
    if (writing && name !== "Ctrl+Enter" && name !== "Escape") return;
    if (!writing && name === "Enter" && event.target.matches("a, button, summary")) return;
    const action = actions[name];
    if (action && action(event) !== false) event.preventDefault();
  });
}

/** An element with text (never markup) and children. */
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** An action in words. */
export function describe(action) {
  if (!action) return "no action";
  const { type, x, y, to_x, to_y, ...rest } = action;
  const points = [[x, y], [to_x, to_y]].filter(([one]) => one !== undefined).map((point) => `(${point.map((one) => one.toFixed(3)).join(", ")})`);
  return [type.replaceAll("_", " "), points.join(" to "), ...Object.values(rest).map((one) => JSON.stringify(one))].filter(Boolean).join(" ");
}

export const remember = (decision) => sessionStorage.setItem("last", JSON.stringify(decision));
export const last = () => JSON.parse(sessionStorage.getItem("last") ?? "null");

const SAME_PRESS_MS = 1000;
let undoing = false;
let undoneAt = sessionStorage.getItem("undone") ? performance.now() : -Infinity;
sessionStorage.removeItem("undone");

/** What undoes (and says whether it did), as a key does it: one that is pressed twice undoes one decision, also where the second press meets the
 *  page that the first one opened. */
export const once = (undo) => async () => {
  if (undoing || performance.now() - undoneAt < SAME_PRESS_MS) return;
  undoing = true;
  try {
    if (await undo()) undoneAt = performance.now();
  } finally {
    undoing = false;
  }
};

/** Undoes your last decision of this session, wherever you are, and shows its trajectory; whether there was one. */
export async function undoLast() {
  const decision = last();
  const who = person();
  if (!decision) toast("There is no decision of this session to undo.");
  if (!decision || !who) return false;
  const { trajectory_id, revision, review_id } = decision;
  const [status, answer] = await ask("/api/reviews", { trajectory_id, revision, person: who, decision: "undo", undoes: review_id });
  if (status !== 201) {
    toast(answer.error);
    return false;
  }
  sessionStorage.removeItem("last");
  sessionStorage.setItem("undone", "here");
  location.href = `/review/${trajectory_id}`;
  return true;
}

const queue = document.getElementById("queue");
if (queue) {
  const places = [...queue.querySelectorAll(".place")];
  let at = -1;
  const go = (to) => {
    places[at]?.classList.remove("now");
    at = Math.max(0, Math.min(places.length - 1, to));
    places[at]?.classList.add("now");
    places[at]?.scrollIntoView({ block: "nearest" });
  };
  go(0);
  keys({
    j: () => go(at + 1), ArrowDown: () => go(at + 1), k: () => go(at - 1), ArrowUp: () => go(at - 1),
    Enter: () => places[at]?.click(), "]": () => document.getElementById("next")?.click(),
    "[": () => document.getElementById("previous")?.click(), u: once(undoLast),
  });
}
