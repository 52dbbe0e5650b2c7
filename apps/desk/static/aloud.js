/* Think-aloud: notes or sound become words by step, which are yours to edit before they are kept. */
import { ask, keys, person, toast } from "/static/desk.js";

const root = document.getElementById("aloud");
const { name } = root.dataset;
const $ = (id) => document.getElementById(id);
const fields = [...root.querySelectorAll("textarea[data-step]")];
const draft = `aloud:${name}`;
let revision = Number(root.dataset.revision);

const store = () => localStorage.setItem(draft, JSON.stringify({ notes: $("notes").value, steps: fields.map((one) => one.value) }));
const kept = JSON.parse(localStorage.getItem(draft) ?? "null");
if (kept) {
  $("notes").value = kept.notes;
  fields.forEach((field, place) => { field.value = kept.steps[place] ?? ""; });
}
root.addEventListener("input", store);

/** Puts words to their steps, in the place of what the same source (`notes`, `sound`) put there before. */
function put(source, [status, answer]) {
  if (status !== 200) return toast(answer.error);
  for (const field of fields) {
    const before = field.dataset[source] ?? "";
    const thought = answer.steps.find((one) => one.step === Number(field.dataset.step))?.thought ?? "";
    const rest = before && field.value.includes(before) ? field.value.replace(before, () => thought) : `${field.value} ${thought}`;
    field.value = rest.replace(/ {2,}/g, " ").trim();
    field.dataset[source] = thought;
  }
  store();
  toast(answer.steps.length ? `Put to ${answer.steps.length} of ${fields.length} steps. Read it, then keep it.` : "Nothing was heard.");
}

const offset = () => Number($("offset").value) || 0;
async function align() {
  put("notes", await ask(`/api/trajectories/${name}/aloud/notes`, { notes: $("notes").value, offset_s: offset() }));
}

$("align").addEventListener("click", align);
$("sound").addEventListener("change", async () => {
  const [file] = $("sound").files;
  if (!file) return;
  toast("Listening …");
  put("sound", await ask(`/api/trajectories/${name}/aloud/sound?offset_s=${offset()}`, file, { "content-type": "audio/wav" }));
  $("sound").value = "";
});

async function keep() {
  const who = person();
  if (!who) return;
  const written = fields.filter((one) => one.value.trim());
  for (const field of written) {
    const sent = { trajectory_id: name, revision, person: who, decision: "note", step: Number(field.dataset.step), thought: field.value.trim() };
    const [status, answer] = await ask("/api/reviews", sent);
    if (status === 409) {
      revision = answer.revision;
      $("banner").textContent = `Meanwhile ${answer.others.map((one) => `${one.person} decided: ${one.decision.replaceAll("_", " ")}`).join("; ")}. What you wrote is still here; keep it again to add it.`;
      $("banner").hidden = false;
      return;
    }
    if (status !== 201) return toast(answer.error);
    revision = answer.revision;
    field.value = "";
    store();
  }
  $("banner").hidden = true;
  if (written.length) localStorage.removeItem(draft);
  toast(written.length ? `Kept ${written.length} thoughts.` : "There is nothing to keep.");
}

$("keep").addEventListener("click", keep);
keys({ K: keep, "Ctrl+Enter": align, Escape: () => document.activeElement?.blur(), q: () => { location.href = "/queue"; } });
