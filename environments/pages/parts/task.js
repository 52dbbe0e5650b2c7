/* A page with a task: which widgets, in which layout, what is asked for, the next input of the solution, and the reward. */
"use strict";

const FINALS = ["Save", "Apply", "Send", "Confirm", "Done", "Finish", "Store", "Continue"];
const FINISHES = [", then press {v}", " and finish with {v}", "; {v} ends it", ", and confirm it by {v}"];
const MOST_INPUTS = 6;
const NATIVE_SCROLL_PX = 265;
/* Pixels at the edge of a view, such as its frame, at which nothing is pressed. */
const EDGE = 4;

const page = {
  widgets: [],
  goals: [],
  final: null,
  ended: false,
  spoilt: false,

  /* `about`: seed, layout, heldOut, and the names of widgets and fonts that may be used. */
  make(about) {
    const p = { chance: new Chance(`${about.layout} ${about.seed}`) };
    const [width, height, chance] = [innerWidth, innerHeight, p.chance];
    p.text = new Text(chance, about.heldOut);
    p.name = (words) => p.text.name(words);
    p.small = width < 400;
    p.part = chance.pick(["Part", "Step", "Stage", "Sum"]);
    p.more = chance.pick(["More", "Others", "Details"]);
    this.theme = chance.pick(about.themes);
    this.font = chance.pick(about.fonts);
    this.px = chance.int(9, Math.max(11, Math.min(24, Math.floor(width / 13))));
    if (chance.test(0.5)) this.px = Math.min(this.px, chance.int(10, 14));
    p.px = this.px;
    dress(this.theme, this.font, this.px);
    const room = Math.floor((width * height) / (this.px * this.px * 110));
    const count = chance.int(1, Math.max(2, Math.min(14, room)));
    const kinds = chance.some(about.widgets, count);
    if (about.favoured.length && chance.test(0.7)) kinds[0] = chance.pick(about.favoured);
    this.widgets = [...new Set(kinds)].map((kind) => ({ kind, ...WIDGETS[kind](p) }));
    if (!this.widgets.some((one) => one.want)) this.widgets.push({ kind: "buttons", ...WIDGETS.buttons(p) });
    const submits = chance.test(0.55);
    const word = chance.pick(FINALS);
    if (submits) this.final = el(chance.test(0.5) ? "button.press.strong" : "button.press", { type: "button", click: () => { this.ended = true; } }, word);
    this.last = this.final && el("div.widget", {}, this.final);
    document.body.replaceChildren(LAYOUTS[about.layout](p, this.rows(p), this.last));
    this.initial = this.widgets.map((one) => one.get());
    this.goals = this.chosen(p);
    this.instruction = this.worded(p, word);
    this.disable(p);
    this.before = this.state();
    const scrollable = document.scrollingElement.scrollHeight > height;
    if (scrollable && chance.test(0.15)) scrollTo(0, chance.int(0, height));
    const focusable = document.querySelectorAll("input:not(:disabled), button:not(:disabled)");
    if (focusable.length && chance.test(0.12)) chance.pick([...focusable]).focus({ preventScroll: true });
    this.before = this.state();
    return this.instruction;
  },

  /* The widgets' nodes; some of them next to each other if there is room. */
  rows(p) {
    const nodes = this.widgets.map((one) => one.node), across = p.chance.int(1, Math.min(3, columns(p, 3)));
    return nodes.flatMap((_, at) => (at % across ? [] : across > 1 ? grid(across, nodes.slice(at, at + across)) : nodes[at]));
  },

  /* Goals, as many as fit in the inputs: each with the widget and the value that it is to have. */
  chosen(p) {
    let left = MOST_INPUTS - (this.final ? 1 : 0), top = 0;
    const found = [], most = p.chance.pick([1, 1, 2, 2, 3]);
    const costOf = (node) => {
      const closedBy = [];
      for (let up = node; up; up = up.parentElement) if (up.hidden) { closedBy.push(up); up.hidden = false; }
      const at = (node.getBoundingClientRect().top + node.getBoundingClientRect().bottom) / 2 + scrollY;
      for (const one of closedBy) one.hidden = true;
      const scrolls = Math.ceil(Math.max(0, Math.abs(at - top - innerHeight / 2) - innerHeight / 2) / stepOf(innerHeight));
      return [closedBy.length + scrolls, scrolls ? at - innerHeight / 2 : top];
    };
    const open = p.chance.shuffled(this.widgets.filter((one) => one.want)).sort((a, b) => (a === this.widgets[0] ? -1 : b === this.widgets[0] ? 1 : 0));
    for (const one of open) {
      if (found.length >= most || (one.once && !this.final && found.some((other) => other.widget.once))) continue;
      const [more, to] = costOf(one.node), back = this.final ? costOf(this.final)[0] : 0;
      if (found.length && one.cost + more + back > left) continue;
      left -= one.cost + more;
      top = to;
      const widget = one;
      found.push({ widget, value: one.want() });
    }
    /* What acts at once comes last, as it would end a task without a last button. */
    return [...found.filter(({ widget }) => !widget.once), ...found.filter(({ widget }) => widget.once)];
  },

  worded(p, word) {
    const mark = p.chance.pick([["“", "”"], ['"', '"'], ["'", "'"]]), plain = p.chance.test(0.4);
    const quoted = (text, bare) => (bare ? text : mark.join("\n").replace("\n", text));
    const parts = this.goals.map(({ widget, value }) => p.chance.pick(widget.ask)
      .replace("{n}", () => quoted(widget.name, plain)).replace("{v}", () => quoted(value, widget.bare || ["ticked", "unticked", "on", "off"].includes(value))));
    const lower = (text) => text[0].toLowerCase() + text.slice(1);
    const joint = p.chance.pick([", then ", " and ", ". ", "; "]);
    const text = parts.map((one, at) => (at && joint !== ". " && !one.startsWith(mark[0]) && one[0] === one[0].toUpperCase() && !this.goals.some(({ widget }) => one.startsWith(widget.name)) ? lower(one) : one)).join(joint);
    return `${text}${this.final ? p.chance.pick(FINISHES).replace("{v}", quoted(word, plain)) : ""}.`;
  },

  disable(p) {
    const idle = this.widgets.filter((one) => one.native && !this.goals.some(({ widget }) => widget === one));
    if (idle.length && p.chance.test(0.25)) for (const control of p.chance.pick(idle).native) control.disabled = true;
  },

  met() { return this.widgets.every((one, at) => one.get() === (this.goals.find(({ widget }) => widget === one)?.value ?? this.initial[at])); },
  /* Null while the task is open. */
  reward() {
    if (this.final) return this.ended ? Number(this.met()) : null;
    const wrong = this.widgets.some((one, at) => {
      const goal = this.goals.find(({ widget }) => widget === one);
      return one.once && one.get() !== this.initial[at] && one.get() !== goal?.value;
    });
    return wrong ? 0 : this.met() ? 1 : null;
  },

  /* The solution's next input at the page as it is, and the node that it is at; null where the task is over. */
  next() {
    const goal = this.goals.find(({ widget, value }) => widget.get() !== value);
    const wanted = goal ? goal.widget.next(goal.value) : this.final && !this.ended ? click(this.final) : null;
    return wanted && reached(wanted);
  },

  /* What a sentence about a change goes by. */
  state() {
    return { values: this.widgets.map((one) => one.get()), focus: document.activeElement, text: document.activeElement?.value,
      months: [...document.querySelectorAll(".month .title")].map((one) => one.textContent), marked: String(getSelection()),
      scroll: [document.scrollingElement, ...document.querySelectorAll(".scroller, .pane")].map((one) => one.scrollTop),
      open: [...document.querySelectorAll(".popup:not([hidden]), select:open")], parts: [...document.querySelectorAll("[hidden]")].length, ended: this.ended };
  },
  part(node) {
    const kind = node.getAttribute("role") === "dialog" ? "dialog" : node.querySelector(".month") ? "calendar" : node.getAttribute("role") === "menu" ? "menu" : "list";
    return `The ${kind} of ${this.widgets.find((one) => one.node.contains(node))?.name ?? "the page"}`;
  },
  change() {
    const before = this.before, after = this.before = this.state();
    const at = after.values.findIndex((value, one) => value !== before.values[one]);
    if (after.ended !== before.ended) return `${this.final.textContent} was pressed and the task ended.`;
    if (at >= 0) return this.widgets[at].tell(after.values[at]);
    if (after.open.length > before.open.length) return `${this.part(after.open.find((one) => !before.open.includes(one)))} opened.`;
    if (after.open.length < before.open.length) return `${this.part(before.open.find((one) => !after.open.includes(one)))} closed.`;
    const turned = after.months.findIndex((value, one) => value !== before.months[one]);
    if (turned >= 0) return `The calendar now shows ${after.months[turned]}.`;
    if (after.parts !== before.parts) return "Another part of the page is now shown.";
    const moved = after.scroll.findIndex((value, one) => value !== before.scroll[one]);
    if (moved >= 0) return `The ${moved ? "box" : "page"} scrolled ${after.scroll[moved] > before.scroll[moved] ? "down" : "up"}.`;
    if (after.focus !== before.focus) return after.focus === document.body ? "Nothing has the focus now." : `${named(after.focus)} has the focus now.`;
    if (after.text !== before.text) return `${named(after.focus)} now has “${after.text}”.`;
    if (after.marked !== before.marked) return after.marked ? `“${after.marked}” is now selected.` : "Nothing is selected now.";
    return "Nothing changed, apart from the pointer.";
  },
};

const named = (node) => {
  const name = (node.labels?.[0] ?? node).textContent.trim() || node.getAttribute("aria-label") || node.placeholder || "";
  return `The ${node.matches("input, textarea") ? "field" : node.matches("button") ? "button" : "part"} ${name}`.trim();
};

/* How far one scroll moves: less than a view, so that nothing is passed by. */
const stepOf = (view) => Math.min(NATIVE_SCROLL_PX, Math.floor(view * 0.7));
addEventListener("wheel", (event) => {
  event.preventDefault();
  const by = Math.sign(event.deltaY);
  for (let up = event.target; up; up = up.parentElement) {
    const scrolls = up === document.scrollingElement || ["auto", "scroll"].includes(getComputedStyle(up).overflowY);
    const view = up === document.scrollingElement ? innerHeight : up.clientHeight, from = up.scrollTop;
    if (!scrolls || up.scrollHeight <= up.clientHeight) continue;
    up.scrollTop += by * stepOf(view);
    if (up.scrollTop !== from) return;
  }
}, { passive: false });

const viewOf = (node) => {
  let [left, top, right, bottom] = [0, 0, innerWidth, innerHeight];
  for (let up = node.parentElement; up && up !== document.documentElement; up = up.parentElement) {
    if (up === document.body || getComputedStyle(up).overflowY === "visible") continue;
    const box = up.getBoundingClientRect();
    [left, top, right, bottom] = [Math.max(left, box.left), Math.max(top, box.top), Math.min(right, box.right), Math.min(bottom, box.bottom)];
  }
  return { left, top, right, bottom };
};
const centre = (box) => [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
/* The first line of a link that wraps. */
const boxOf = (node) => (node.tagName === "A" ? node.getClientRects()[0] : null) ?? node.getBoundingClientRect();
/* The input itself if its place can be seen, else the one that brings it into view. */
const reached = (input) => {
  if (input.do === "type" || input.do === "hotkey") return { ...input, node: document.activeElement };
  const shut = [];
  for (let up = input.node; up; up = up.parentElement) if (up.hidden) shut.push(up);
  if (shut.length) {
    const opener = shut.at(-1).opener();
    return reached(opener.do ? opener : click(opener));
  }
  const box = boxOf(input.node), from = input.from ? input.from(box) : centre(box);
  const ends = [from, ...(input.to ? [typeof input.to === "function" ? input.to(box) : centre(boxOf(input.to))] : [])];
  for (const [at, point] of ends.entries()) {
    const node = at && input.to instanceof Element ? input.to : input.node;
    const boxes = [document.scrollingElement];
    for (let up = node.parentElement; up && up !== document.body; up = up.parentElement) if (["auto", "scroll"].includes(getComputedStyle(up).overflowY)) boxes.splice(1, 0, up);
    for (const outer of boxes) {
      const inner = boxes[boxes.indexOf(outer) + 1], view = inner ? viewOf(inner) : viewOf(node), aim = inner ? centre(inner.getBoundingClientRect()) : point;
      const seen = outer === document.scrollingElement ? { left: 0, top: 0, right: innerWidth, bottom: innerHeight } : view;
      if (aim[1] > seen.top + EDGE && aim[1] < seen.bottom - EDGE) continue;
      const middle = outer === document.scrollingElement ? freePoint() : centre(seen);
      return { do: "scroll", node: outer, at: middle, direction: aim[1] >= seen.bottom - EDGE ? "down" : "up" };
    }
  }
  const hit = document.elementFromPoint(...from);
  const cover = hit && !input.node.contains(hit) && hit.closest(".popup");
  if (cover && !cover.contains(input.node)) return { do: "hotkey", key: "escape", node: document.activeElement };
  return { ...input, at: ends[0], to: ends[1] };
};
/* A point of the page where the wheel moves the page and no box in it. */
const freePoint = () => {
  for (const y of [0.5, 0.3, 0.7, 0.1, 0.9]) for (const x of [0.5, 0.2, 0.8, 0.02, 0.98]) {
    const point = [innerWidth * x, innerHeight * y], hit = document.elementFromPoint(...point);
    if (hit && !hit.closest(".scroller, .pane, select")) return point;
  }
  return [innerWidth / 2, innerHeight / 2];
};

page.start = () => page.make(window.about);
window.task = page;
