/* A live session: shows what the sandbox shows and what is proposed, and sends what you decide. The session itself is the
   desk's: this page can be reloaded or closed at any time; what you were writing rests in this browser meanwhile, and is
   there again where somebody else decided first. */
import { ask, describe, keys, make, person, toast } from "/static/desk.js";
import { ActionEditor, Screen } from "/static/screen.js";

const $ = (id) => document.getElementById(id);
const MISSING = "The picture of the screen did not come. Reload the page; the session goes on meanwhile.";

const begin = $("begin");
if (begin) {
  const start = async () => {
    const who = person();
    if (!who) return;
    const { task_id, policy, seed } = begin.elements;
    const sent = { person: who, task_id: task_id.value, policy: policy.value, seed: seed.value === "" ? null : Number(seed.value) };
    const [status, answer] = await ask("/api/live", sent);
    if (status === 201) location.href = `/live/${answer.session}`;
    else toast(answer.error);
  };
  begin.addEventListener("submit", (event) => { event.preventDefault(); start(); });
  keys({ "Ctrl+Enter": start });
}

const root = $("session");
if (root) run(root);

function run(root) {
  const { name } = root.dataset;
  const screen = new Screen($("screen"), (came) => { missing = came ? "" : MISSING; show(); });
  const editor = new ActionEditor($("editor"), screen, JSON.parse(root.dataset.kinds), () => { keep(); draw(); });
  let now = null, asked = performance.now(), sending = false;
  let missing = "", away = "", gone = ""; // why there is no picture, no answer, no session any more
  const draftKey = `live:${name}`;
  const draft = () => JSON.parse(localStorage.getItem(draftKey) ?? "null");
  const keep = () => localStorage.setItem(draftKey, JSON.stringify({ number: now.number, action: editor.action, thought: editor.thought }));
  const forget = () => localStorage.removeItem(draftKey);
  const editing = () => !editor.form.hidden;
  const stands = () => now?.state === "asking" && screen.ready && !gone;
  const open = () => stands() && !away;
  const asking = () => open() && !sending;

  function draw() {
    screen.mark(editing() ? editor.action : asking() ? now.proposal?.action : null);
    $("point").textContent = editing() ? describe(editor.action) : "";
  }

  /** Draws the session as it is; nothing is offered before the screen that it is about is seen. */
  function show() {
    if (now.screen.screenshot) screen.show(now.screen.screenshot, 0, now.screen.width, now.screen.height);
    $("asks").textContent = now.instruction;
    $("state").textContent = gone ? "gone" : away ? "no answer" : now.state !== "asking" ? now.state : open() ? "your turn" : "loading the screen";
    $("number").textContent = Math.min(now.done.length, now.max_steps - 1);
    $("proposal").classList.toggle("waiting", !open());
    $("thought").textContent = now.proposal?.thought ?? "";
    $("action").textContent = now.proposal ? describe(now.proposal.action) : "";
    $("error").textContent = now.proposal?.error ?? "";
    $("done").replaceChildren(...now.done.map((one) => make("li", {}, make("b", {}, one.actor), ` ${describe(one.action)} `, make("span", { class: "soft" }, one.thought))));
    for (const button of $("actions").children) button.disabled = Boolean(gone || away) || (!open() && button.dataset.do !== "end");
    $("actions").hidden = Boolean(gone) || now.state === "ended";
    if (!stands()) editor.close();
    else if (draft()) override();
    say();
    draw();
  }

  /** Says above the screen what the page cannot show otherwise; most of it is something that went wrong. */
  function say() {
    const left = sending ? null : draft(), banner = $("banner"), over = gone || now.state === "ended";
    const unsent = left && over ? ` What you were writing was not sent: ${describe(left.action)} ${left.thought}` : "";
    const overtaken = left && !over && left.number !== now.number;
    banner.classList.toggle("said", !gone && now.state === "ended" && !now.problem);
    banner.replaceChildren(gone || away || missing);
    if (!gone && now.state === "ended") ended();
    else if (overtaken && !away && !missing) {
      const by = now.decided ? `${now.decided.person} decided: ${now.decided.decision} ${describe(now.done.at(-1)?.action)}` : "the session went on";
      const where = stands() ? "is in the form again, for this screen: look at it before you do it" : "comes back with the next screen";
      banner.append(make("b", {}, "Meanwhile "), `${by}. What you were writing ${where}.`);
    }
    banner.append(unsent);
    banner.hidden = !banner.textContent;
  }

  function ended() {
    const { success, failure_reason, n_steps } = now.result;
    const how = now.problem || (success === null ? `It ended early: ${failure_reason}.` : `${success ? "Success" : "Failure"} after ${n_steps} steps${failure_reason ? `: ${failure_reason}` : ""}.`);
    $("banner").replaceChildren(`${how} `);
    if (!now.problem) $("banner").append("It is stored: ", make("a", { href: `/trajectory/${now.trajectory}` }, "look at it"), ", or ", make("a", { href: `/live?task=${encodeURIComponent(now.task)}` }, "begin another one"), ".");
  }

  function override() {
    if (!asking()) return;
    const left = draft();
    editor.open(left?.action ?? now.proposal?.action, left?.thought ?? "");
    screen.svg.focus({ preventScroll: true });
    draw();
  }

  function cancel(event) {
    if (event && editing() && document.activeElement?.closest("form")) return screen.svg.focus();
    forget();
    editor.close();
    show();
  }

  async function send(decision, fields = {}) {
    const who = asking() && person();
    if (!who) return;
    const seconds = Math.round(performance.now() - asked) / 1000;
    sending = true;
    const [status, answer] = await ask(`/api/live/${name}`, { person: who, number: now.number, decision, seconds, ...fields });
    sending = false;
    if (status === 202) {
      forget();
      editor.close();
      now = { ...now, state: "acting" }; // what the desk says next; until then nothing is decided twice
    } else toast(status === 409 ? "Another page has decided on this step; here is where it stands." : answer.error);
    show();
  }

  async function end() {
    const [status, answer] = await ask(`/api/live/${name}/end`, { person: person() });
    if (status !== 202) toast(answer.error);
  }

  const does = {
    accept: () => !editing() && send("accept"), override, cancel: () => cancel(), end,
    save: () => editor.form.reportValidity() && send("override", { action: editor.action, thought: editor.thought }),
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button) return does[button.dataset.do]();
    if (event.target.closest("#screen") && !editing() && asking()) {
      const at = screen.point(event);
      override();
      if (at) editor.put(at);
    }
  });
  editor.form.addEventListener("submit", (event) => { event.preventDefault(); does.save(); });
  editor.form.addEventListener("input", keep);
  keys({
    a: does.accept, o: () => (editing() ? false : override()), E: () => (editing() ? false : end()), Escape: (event) => editing() && cancel(event),
    t: () => editing() && editor.form.elements.thought.focus(), f: () => editing() && editor.form.elements.type.focus(),
    "Ctrl+Enter": () => (editing() ? does.save() : false),
  });

  (async () => {
    while (now?.state !== "ended") {
      const [status, found] = await ask(`/api/live/${name}?seen=${now?.number ?? -1}`);
      if (status === 422) {
        gone = found.error;
        now ??= { state: "gone", number: -1, done: [], screen: {}, max_steps: 1, instruction: $("asks").textContent };
        show();
        return;
      }
      const silent = status === 200 ? "" : found.error || "The desk does not answer.";
      if (silent !== away) {
        away = silent;
        if (now) show();
      }
      if (silent) await new Promise((done) => setTimeout(done, 1000));
      else if (found.number !== now?.number) {
        if (editing() && !sending) keep();
        now = found;
        asked = performance.now();
        show();
      }
    }
  })();
}
