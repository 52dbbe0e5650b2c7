// Decide on the selected trajectories, or on all that match the filters, and undo that; tag, export or forget them.
import { ask, make, person, toast } from "/static/desk.js";

const form = document.getElementById("many"), at = (id) => document.getElementById(id);
const picks = [...document.querySelectorAll("[name=pick]")];
const chosen = () => picks.filter((one) => one.checked).map((one) => one.value);
const matching = () => at("matching")?.checked ?? false;
const counted = (n) => `${n.toLocaleString("en")} ${n === 1 ? "trajectory" : "trajectories"}`;

function show() {
  const n = matching() ? Number(form.dataset.total) : chosen().length;
  at("decide").disabled = n === 0;
  const chosenWork = form.elements.decision.value, verb = { export: "Export", forget: "Count what to forget of" }[chosenWork] ?? "Decide on";
  at("decide").textContent = n ? `${verb} ${counted(n)}` : "Decide";
  form.elements.format.hidden = chosenWork !== "export";
  form.elements.note.hidden = chosenWork === "export";
  at("all").checked = picks.length > 0 && picks.every((one) => one.checked);
  for (const one of [...picks, at("all")]) one.disabled = matching();
}

function result(done, text, undoing) {
  const left = Object.entries(done.left_out ?? {}).map(([reason, n]) => `; ${n} left out: ${reason}`).join("");
  const parts = [`${counted(done.trajectories.length)}: ${text}${left}. `];
  if (undoing && done.trajectories.length) {
    const undo = make("button", { type: "button", id: "undo" }, "Undo");
    undo.addEventListener("click", () => takeBack(undoing, undo));
    parts.push(undo);
  }
  parts.push(" ", make("a", { href: location.href }, "Load the list again"));
  if (form.dataset.champion) parts.push(" · ", make("a", { href: `/policies/${encodeURIComponent(form.dataset.champion)}` }, "Retrain"));
  message(...parts);
}

async function takeBack([path, body], button) {
  const who = person();
  if (!who) return;
  button.disabled = true;
  const [status, answer] = await ask(path, { ...body, person: who });
  button.disabled = false;
  if (status === 201) result(answer, "undone");
  else toast(answer.error);
}

/** Show a result with further parts, such as a link or a button. */
function message(...parts) {
  at("decided").replaceChildren(...parts);
  at("decided").hidden = false;
}

function exported(done) {
  const link = make("a", { href: `/exports/${done.file}`, download: done.file }, `${done.file} (${done.mb.toFixed(1)} MB)`);
  const how = done.redacted ? "without secrets and personal data" : "with all data, for a later import";
  message(`${counted(done.trajectories.length)}, ${how}: `, link, ...done.notes.map((note) => ` · ${note}`));
}

/** Show what a removal would take, with a button that does it. */
function counts(found, body) {
  const rows = Object.values(found.rows).reduce((sum, n) => sum + n, 0), more = found.with_them.length;
  const learned = [...new Set(Object.values(found.policies).flat())].join(", ") || "none";
  const text = `${counted(found.trajectories.length)}${more ? ` (${more} repeat steps of the others)` : ""}, ${rows.toLocaleString("en")} rows. Policies that learned from them: ${learned}. `;
  const button = make("button", { type: "button", id: "forget", class: "bad" }, "Forget for good");
  button.addEventListener("click", async () => {
    button.disabled = true;
    const [status, answer] = await ask("/api/forget", { ...body, dry_run: false });
    button.disabled = false;
    if (status !== 201) toast(answer.error);
    else message(`${counted(answer.trajectories.length)}: forgotten. Policies that learned from them: ${learned}. `, make("a", { href: location.href }, "Load the list again"));
  });
  message(text, button);
}

/** The request of each choice, and what shows its answer. */
function work(decision, note, which) {
  if (decision === "tag") return ["/api/tags", { tag: note }, (done) => result(done, `tag ${note}`, ["/api/tags", { tag: note, ids: done.trajectories, remove: true }])];
  if (decision === "export") return ["/api/exports", { format: form.elements.format.value }, exported];
  if (decision === "forget") return ["/api/forget", { reason: note }, (found) => counts(found, { reason: note, ...which })];
  const text = form.elements.decision.selectedOptions[0].textContent;
  return ["/api/decisions", { decision, note }, (done) => result(done, text, done.batch && [`/api/decisions/${done.batch}/undo`, {}])];
}

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const who = person();
  if (!who) return;
  const which = matching() ? { filters: JSON.parse(form.dataset.filters), members: form.dataset.members } : { ids: chosen() };
  which.person = who;
  const [path, body, then] = work(form.elements.decision.value, form.elements.note.value.trim(), which);
  at("decide").disabled = true;
  const [status, answer] = await ask(path, { ...body, ...which });
  if (status === 201) then(answer);
  else toast(answer.error);
  show();
});
form?.elements.decision.addEventListener("change", show);
at("all")?.addEventListener("change", () => { for (const one of picks) one.checked = at("all").checked; show(); });
at("matching")?.addEventListener("change", show);
for (const one of picks) one.addEventListener("change", show);
if (form) show();
