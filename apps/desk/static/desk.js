/* Shared by all pages: the reviewer's name, keys, requests to the desk and the last decision; also the queue's keys. */

const field = document.getElementById("person");
field.value = localStorage.getItem("person") ?? "";
/** Send the reviewer's name to the desk, which spreads reviewers over the queue. Each decision sends its own name. */
const sendName = () => { document.cookie = `person=${encodeURIComponent(field.value.trim())}; path=/; samesite=strict`; };
sendName();
field.addEventListener("input", () => { localStorage.setItem("person", field.value.trim()); sendName(); });
field.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === "Escape") field.blur(); });

/** Return the reviewer's name. If it is missing, ask for it and return "". */
export function person() {
  if (!field.value.trim()) {
    field.focus();
    toast("Enter your name first (top right). Each decision is stored with a name.");
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

/** Send a request; return the response's status and JSON. The status is 0 if the desk does not respond. */
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
    return [0, { error: "The desk does not respond. Your text is kept in this browser." }];
  }
}

/** Run actions by key, but not while the user types in a field. Escape and Ctrl+Enter work everywhere. */
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

/** Create an element with children; text is never read as markup. */
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Describe an action as text. */
export function describe(action) {
  if (!action) return "no action";
  const { type, x, y, to_x, to_y, ...rest } = action;
  const points = [[x, y], [to_x, to_y]].filter(([one]) => one !== undefined).map((point) => `(${point.map((one) => one.toFixed(3)).join(", ")})`);
  return [type.replaceAll("_", " "), points.join(" to "), ...Object.values(rest).map((one) => JSON.stringify(one))].filter(Boolean).join(" ");
}

/** Describe the actions of a reply as text, each followed by `note(place)`. */
export const describeAll = (actions, note = () => "") => (actions ?? []).map((one, place) => describe(one) + note(place)).join("; ") || describe(null);

export const remember = (decision) => sessionStorage.setItem("last", JSON.stringify(decision));
export const last = () => JSON.parse(sessionStorage.getItem("last") ?? "null");

const SAME_PRESS_MS = 1000;
let undoing = false;
let undoneAt = sessionStorage.getItem("undone") ? performance.now() : -Infinity;
sessionStorage.removeItem("undone");

/** Wrap an undo function (which returns whether it undid a decision) for a key. A key that is pressed twice undoes one
 *  decision, even if the second press reaches the page that the first one opened. */
export const once = (undo) => async () => {
  if (undoing || performance.now() - undoneAt < SAME_PRESS_MS) return;
  undoing = true;
  try {
    if (await undo()) undoneAt = performance.now();
  } finally {
    undoing = false;
  }
};

/** Undo the last decision of this session from any page, and open its trajectory. Return whether it was undone. */
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
