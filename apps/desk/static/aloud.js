/* Think-aloud: assign notes or a recording to steps as thoughts, which the reviewer edits before saving them. */
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

/** Assign thoughts to their steps. They replace the text that the same source (`notes`, `sound`) assigned before. */
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
  toast(answer.steps.length ? `Assigned to ${answer.steps.length} of ${fields.length} steps. Check the text, then save it.` : "No text was found.");
}

const offset = () => Number($("offset").value) || 0;
async function align() {
  put("notes", await ask(`/api/trajectories/${name}/aloud/notes`, { notes: $("notes").value, offset_s: offset() }));
}

$("align").addEventListener("click", align);
$("sound").addEventListener("change", async () => {
  const [file] = $("sound").files;
  if (!file) return;
  toast("Transcribing …");
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
      $("banner").textContent = `Meanwhile ${answer.others.map((one) => `${one.person} decided: ${one.decision.replaceAll("_", " ")}`).join("; ")}. Your text is still here; save again to add it.`;
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
  toast(written.length ? `Saved ${written.length} ${written.length === 1 ? "thought" : "thoughts"}.` : "There is nothing to save.");
}

$("keep").addEventListener("click", keep);
keys({ K: keep, "Ctrl+Enter": align, Escape: () => document.activeElement?.blur(), q: () => { location.href = "/queue"; } });
