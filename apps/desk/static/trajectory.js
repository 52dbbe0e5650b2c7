/* One trajectory: its steps by key, and, in a review, the decisions on it. This browser keeps drafts until they are
   saved, so neither a reload nor another reviewer's decision loses one. */
import { ask, describe, describeAll, keys, last, make, once, person, remember, toast, undoLast } from "/static/desk.js";
import { ActionEditor, Screen } from "/static/screen.js";

const root = document.getElementById("item");
const { mode } = root.dataset;
const item = JSON.parse(root.dataset.item);
const opened = performance.now();
const $ = (id) => document.getElementById(id);
const screen = $("screen") && new Screen($("screen"));
let at = Number(root.dataset.first), part = 0, boxed = false, revision = item.revision;
const step = () => item.steps[at];
/** Return the screen before each action of a step that was tried. */
const screens = (one) => [one.screenshot, ...one.frames];
const parsed = (text) => (text ? JSON.parse(text) : null);

function draw() {
  if (!screen) return;
  const one = step(), tried = screens(one), after = part >= tried.length;
  screen.show(after ? one.next_screenshot ?? tried.at(-1) : tried[part], item.iteration, one.width, one.height);
  screen.mark(after ? null : editing() ? editor.action : parsed(one.actions[part]), part || editing() ? null : parsed(one.correction));
  if (boxed && !part) screen.boxes(one.elements);
  const before = tried.length > 1 ? `before action ${part + 1} of ${one.actions.length}` : "before";
  $("which").textContent = !after ? before : one.next_screenshot ? "after" : "the screen after the action is not stored";
  $("point").textContent = editing() ? describe(editor.action) : "";
  $("number").textContent = one.step;
  $("actor").textContent = `${one.actor} ${one.policy_version === one.actor ? "" : one.policy_version}`;
  $("thought").textContent = one.thought;
  $("thoughts").replaceChildren(...one.thoughts.map((entry) => {
    const by = [[entry.author, entry.version].filter(Boolean).join(" "), ...entry.patterns.map((name) => name.replaceAll("_", " "))];
    return make("li", {}, `${entry.thought} `, make("span", { class: "soft" }, by.join(" · ")));
  }));
  const left = (place) => (place < tried.length || one.error ? "" : " (not performed)");
  $("action").textContent = describeAll(one.actions.map(parsed), left);
  $("error").textContent = one.error ?? "";
  $("raw").textContent = one.raw_text;
  $("corrected").textContent = one.correction ? `corrected: ${describe(parsed(one.correction))} ${one.correction_thought ?? ""}` : "";
  [...$("strip").querySelectorAll("a")].forEach((link, place) => link.classList.toggle("now", place === at));
  const address = new URL(location.href);
  address.searchParams.set("step", at);
  history.replaceState(null, "", address);
}

function go(to) {
  if (to < 0 || to >= item.steps.length || to === at) return;
  at = to;
  part = 0;
  if (editing()) correct();
  draw();
}

$("strip").addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link) return;
  event.preventDefault();
  go(Number(link.dataset.step));
});

/* --- decisions --- */
const editor = $("editor") && screen && new ActionEditor($("editor"), screen, JSON.parse(root.dataset.kinds), () => { keep(); draw(); });
const draftKey = () => `draft:${item.trajectory_id}:${step().step}`;
const noteKey = `note:${item.trajectory_id}`;
const keep = () => localStorage.setItem(draftKey(), JSON.stringify({ action: editor.action, thought: editor.thought }));

function correct() {
  if (!editor) return;
  const one = step(), draft = JSON.parse(localStorage.getItem(draftKey()) ?? "null");
  part = 0;
  editor.open(draft?.action ?? parsed(one.correction ?? one.actions[0]), draft?.thought ?? one.correction_thought ?? one.thought);
  $("editing").textContent = one.step;
  $("draft").textContent = draft ? "Your saved draft." : "";
  $("noter").hidden = true;
  draw();
  screen.svg.focus({ preventScroll: true });
}

/** Move the focus from a field back to the screenshot; from there, close the form and discard its draft. */
function cancel(event) {
  if (event && editing() && document.activeElement?.closest("form")) return screen.svg.focus();
  if (editing()) localStorage.removeItem(draftKey());
  close();
}

function close() {
  editor?.close();
  $("noter").hidden = true;
  document.activeElement?.blur();
  draw();
}

const editing = () => Boolean(editor) && !editor.form.hidden;
const unless = (action) => () => (editing() ? false : action());

function note() {
  close();
  $("noter").hidden = false;
  $("noter").elements.note.value = localStorage.getItem(noteKey) ?? "";
  $("noter").elements.note.focus();
}

/* One decision at a time: a key that is pressed twice makes one decision, also while the next page loads. */
let deciding = false, leaving = false;
addEventListener("pageshow", () => { leaving = false; });

/** Send a decision. If another reviewer decided first, show that decision; the next press then adds to it. */
async function decide(decision, fields = {}) {
  const who = !deciding && !leaving && person();
  if (!who) return null;
  const seconds = Math.round(performance.now() - opened) / 1000;
  const sent = { trajectory_id: item.trajectory_id, revision, person: who, decision, seconds, ...fields };
  deciding = true;
  const [status, answer] = await ask("/api/reviews", sent);
  deciding = false;
  if (status === 409) {
    conflict(answer);
    return null;
  }
  if (status !== 201) {
    toast(answer.error);
    return null;
  }
  revision = answer.revision;
  $("banner").hidden = true;
  list(answer.reviews);
  if (decision !== "undo") remember({ trajectory_id: item.trajectory_id, revision, review_id: answer.review_id });
  return answer;
}

function conflict(answer) {
  const decided = answer.others.map((one) => `${one.person} decided: ${one.decision.replaceAll("_", " ")}${one.action ? ` ${describe(parsed(one.action))}` : ""}${one.note ? ` (${one.note})` : ""}`);
  $("banner").replaceChildren(make("b", {}, "Meanwhile "), `${decided.join("; ")}. Your decision was not saved, and your text is kept. `,
    "Decide again to add your decision, or continue with ", make("kbd", {}, "j"), ".");
  $("banner").hidden = false;
  revision = answer.revision;
  ask(`/api/trajectories/${item.trajectory_id}`).then(([status, now]) => status === 200 && list(now.reviews));
}

function list(reviews) {
  item.reviews = reviews;
  const rows = reviews.map((one) => {
    const row = make("li", one.holds ? {} : { class: "gone" }, make("b", {}, one.person), ` ${one.decision.replaceAll("_", " ")}`);
    if (one.step !== null) row.append(` at step ${one.step}`);
    if (one.action) row.append(": ", make("code", {}, describe(parsed(one.action))));
    row.append(` ${one.note} `);
    if (one.state) row.append(make("span", { class: "tag" }, one.state), " ");
    if (one.tried_by) row.append(make("a", { href: `/trajectory/${one.tried_by}` }, "its try"), " ");
    else if (one.state === "unverified") row.append(make("span", { class: "soft" }, "not tried"), " ");
    if (one.replaces === false) row.append(make("span", { class: "soft" }, "not a target: the recorded step stays"), " ");
    row.append(make("span", { class: "soft" }, one.at));
    return row;
  });
  $("reviews").replaceChildren(...rows);
  for (const one of item.steps) {
    const made = reviews.filter((review) => review.holds && review.decision === "correct" && review.step === one.step).at(-1);
    one.correction = made?.action ?? null;
    one.correction_thought = made?.thought ?? null;
  }
  [...$("strip").querySelectorAll("a")].forEach((link, place) => link.classList.toggle("right", Boolean(item.steps[place].correction)));
  draw();
}

const next = (by) => { location.href = `/queue/${root.dataset.at}?of=${encodeURIComponent(item.trajectory_id)}&by=${by}`; };

async function verdict(decision, fields = {}) {
  if (!(await decide(decision, fields))) return;
  leaving = true;
  next(1);
}

async function save() {
  if (!editor.form.reportValidity()) return;
  const key = draftKey();
  const saved = await decide("correct", { step: step().step, action: editor.action, thought: editor.thought });
  if (!saved) return;
  localStorage.removeItem(key);
  close();
  toast("Saved. Press u to undo, j for the next one.");
}

async function saveNote() {
  const text = $("noter").elements.note.value;
  if (!(await decide("note", { note: text }))) return;
  localStorage.removeItem(noteKey);
  close();
}

const undo = once(async () => {
  const mine = item.reviews.filter((one) => one.holds && one.decision !== "undo" && one.person === person()).at(-1);
  if (!mine) return undoLast();
  if (!(await decide("undo", { undoes: mine.review_id }))) return false;
  if (last()?.review_id === mine.review_id) sessionStorage.removeItem("last");
  toast(`Undone: ${mine.decision.replaceAll("_", " ")}.`);
  return true;
});

async function policies() {
  $("policies").textContent = "Searching the policies …";
  const [status, found] = await ask(`/api/trajectories/${item.trajectory_id}/policies`);
  const links = status === 200 ? found.map((name) => make("a", { href: `/policies/${encodeURIComponent(name)}` }, name)) : [];
  const answer = status !== 200 ? found.error : found.length ? `Trained on it: ${found.join(", ")}` : "No policy was trained on it.";
  if (links.length) $("policies").replaceChildren("Trained on it: ", ...links.flatMap((link, place) => (place ? [", ", link] : [link])));
  else $("policies").textContent = answer;
  $("policies").scrollIntoView({ block: "nearest" });
  toast(answer); // for screen readers, and for small screens where the list is out of view
}

let replaying = null;
function replay() {
  if (replaying) return (replaying = clearInterval(replaying));
  if (at === item.steps.length - 1) go(0);
  replaying = setInterval(() => {
    const last = screens(step()).length - (step().next_screenshot ? 0 : 1);
    if (part < last) part += 1;
    else if (at < item.steps.length - 1) return go(at + 1);
    else replaying = clearInterval(replaying);
    draw();
  }, 700);
}

const does = {
  accept: () => verdict("accept"), reject: () => verdict("reject"), error: () => verdict("error_step", { step: step().step }),
  correct, note, undo, cancel: () => cancel(),
};
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) does[button.dataset.do]();
});
const common = {
  ArrowLeft: () => go(at - 1), ArrowRight: () => go(at + 1), h: () => go(at - 1),
  b: () => { part = (part + 1) % (screens(step()).length + 1); draw(); }, x: () => { boxed = !boxed; draw(); }, l: policies, q: () => { location.href = "/queue"; },
};
if (mode === "review") {
  editor?.form.addEventListener("submit", (event) => { event.preventDefault(); save(); });
  editor?.form.addEventListener("input", keep);
  $("noter").addEventListener("submit", (event) => { event.preventDefault(); saveNote(); });
  $("noter").addEventListener("input", () => localStorage.setItem(noteKey, $("noter").elements.note.value));
  keys({
    ...common, a: unless(does.accept), r: unless(does.reject), e: unless(does.error), c: correct, n: unless(note), u: unless(undo),
    j: unless(() => next(1)), k: unless(() => next(-1)), q: unless(common.q), Escape: cancel,
    t: () => editing() && editor.form.elements.thought.focus(), f: () => editing() && editor.form.elements.type.focus(),
    "Ctrl+Enter": () => (editing() ? save() : $("noter").hidden ? false : saveNote()),
  });
  if (screen && localStorage.getItem(draftKey())) correct();
} else {
  keys({ ...common, " ": replay });
}
draw();
for (const digest of item.steps.flatMap((one) => [...one.frames, one.next_screenshot])) {
  if (digest) new Image().src = `/screenshot/${digest}?iteration=${item.iteration}`;
}
