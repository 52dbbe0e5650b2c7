// Decide on the selected trajectories, or on all that match the filters, and undo that.
import { ask, make, person, toast } from "/static/desk.js";

const form = document.getElementById("many"), at = (id) => document.getElementById(id);
const picks = [...document.querySelectorAll("[name=pick]")];
const chosen = () => picks.filter((one) => one.checked).map((one) => one.value);
const matching = () => at("matching")?.checked ?? false;
const counted = (n) => `${n.toLocaleString("en")} ${n === 1 ? "trajectory" : "trajectories"}`;

function show() {
  const n = matching() ? Number(form.dataset.total) : chosen().length;
  at("decide").disabled = n === 0;
  at("decide").textContent = n ? `Decide on ${counted(n)}` : "Decide";
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
  at("decided").replaceChildren(...parts);
  at("decided").hidden = false;
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

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const who = person();
  if (!who) return;
  const decision = form.elements.decision.value, note = form.elements.note.value.trim(), button = at("decide");
  const which = matching() ? { filters: JSON.parse(form.dataset.filters), total: Number(form.dataset.total) } : { ids: chosen() };
  button.disabled = true;
  const sent = decision === "tag" ? ["/api/tags", { tag: note }] : ["/api/decisions", { decision, note }];
  const [status, answer] = await ask(sent[0], { ...sent[1], person: who, ...which });
  if (status !== 201) toast(answer.error);
  else if (decision === "tag") result(answer, `tag ${note}`, ["/api/tags", { tag: note, ids: answer.trajectories, remove: true }]);
  else result(answer, form.elements.decision.selectedOptions[0].textContent, answer.batch && [`/api/decisions/${answer.batch}/undo`, {}]);
  show();
});
at("all")?.addEventListener("change", () => { for (const one of picks) one.checked = at("all").checked; show(); });
at("matching")?.addEventListener("change", show);
for (const one of picks) one.addEventListener("change", show);
if (form) show();
