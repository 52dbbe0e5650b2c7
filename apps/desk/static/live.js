/* A live session: show the sandbox's screen and the proposed action, and send the user's decision. The desk holds the
   session, so this page can be reloaded or closed at any time. This browser keeps unsent text, also if another user
   decides first. */
import { ask, describe, describeAll, keys, make, person, toast } from "/static/desk.js";
import { ActionEditor, Screen } from "/static/screen.js";

const $ = (id) => document.getElementById(id);
const MISSING = "The screenshot did not load. Reload the page; the session continues.";

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
  let missing = "", away = "", gone = ""; // the reason why there is no screenshot, response or session
  const draftKey = `live:${name}`;
  const draft = () => JSON.parse(localStorage.getItem(draftKey) ?? "null");
  const keep = () => localStorage.setItem(draftKey, JSON.stringify({ number: now.number, action: editor.action, thought: editor.thought }));
  const forget = () => localStorage.removeItem(draftKey);
  const editing = () => !editor.form.hidden;
  const waiting = () => now?.state === "asking" && screen.ready && !gone;
  const open = () => waiting() && !away;
  const asking = () => open() && !sending;

  function draw() {
    screen.mark(editing() ? editor.action : asking() ? now.proposal?.actions[0] : null);
    $("point").textContent = editing() ? describe(editor.action) : "";
  }

  /** Draw the session's state. Decisions are disabled until the screenshot that they are about has loaded. */
  function show() {
    if (now.screen.screenshot) screen.show(now.screen.screenshot, 0, now.screen.width, now.screen.height);
    $("asks").textContent = now.instruction;
    $("state").textContent = gone ? "gone" : away ? "no response" : now.state !== "asking" ? now.state : open() ? "your turn" : "loading the screen";
    $("number").textContent = Math.min(now.done.length, now.max_steps - 1);
    $("proposal").classList.toggle("waiting", !open());
    $("thought").textContent = now.proposal?.thought ?? "";
    $("action").textContent = now.proposal ? describeAll(now.proposal.actions) : "";
    $("error").textContent = now.proposal?.error ?? "";
    $("done").replaceChildren(...now.done.map((one) => make("li", {}, make("b", {}, one.actor), ` ${describeAll(one.actions)} `, make("span", { class: "soft" }, one.thought))));
    for (const button of $("actions").children) button.disabled = Boolean(gone || away) || (!open() && button.dataset.do !== "end");
    $("actions").hidden = Boolean(gone) || now.state === "ended";
    if (!waiting()) editor.close();
    else if (draft()) override();
    notify();
    draw();
  }

  /** Show a message above the screen, in most cases about an error. */
  function notify() {
    const left = sending ? null : draft(), banner = $("banner"), over = gone || now.state === "ended";
    const unsent = left && over ? ` Your text was not sent: ${describe(left.action)} ${left.thought}` : "";
    const overtaken = left && !over && left.number !== now.number;
    banner.classList.toggle("done", !gone && now.state === "ended" && !now.problem);
    banner.replaceChildren(gone || away || missing);
    if (!gone && now.state === "ended") ended();
    else if (overtaken && !away && !missing) {
      const by = now.decided ? `${now.decided.person} decided: ${now.decided.decision} ${describeAll(now.done.at(-1)?.actions)}` : "the session continued";
      const where = waiting() ? "is in the form again, for this screen: check it before you send it" : "comes back with the next screen";
      banner.append(make("b", {}, "Meanwhile "), `${by}. Your text ${where}.`);
    }
    banner.append(unsent);
    banner.hidden = !banner.textContent;
  }

  function ended() {
    const { success, failure_reason, n_steps } = now.result;
    const how = now.problem || (success === null ? `It ended early: ${failure_reason}.` : `${success ? "Success" : "Failure"} after ${n_steps} steps${failure_reason ? `: ${failure_reason}` : ""}.`);
    $("banner").replaceChildren(`${how} `);
    if (!now.problem) $("banner").append("It is stored: ", make("a", { href: `/trajectory/${now.trajectory}` }, "view it"), ", or ", make("a", { href: `/live?task=${encodeURIComponent(now.task)}` }, "begin another one"), ".");
  }

  function override() {
    if (!asking()) return;
    const left = draft();
    editor.open(left?.action ?? now.proposal?.actions[0], left?.thought ?? "");
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
      now = { ...now, state: "acting" }; // no second decision until the desk sends the next state
    } else toast(status === 409 ? "Another page has already decided on this step; this page now shows the result." : answer.error);
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
      const silent = status === 200 ? "" : found.error || "The desk does not respond.";
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
