/* The widgets. Each makes its node and knows its own value as a text:
     name     what instructions call it
     node     its element
     get()    its value
     want()   another value that can be asked for; a widget without it is never asked for
     ask      wordings of that; {n} is the name, {v} the value
     next(v)  the next input towards that value, from the page as it is
     tell(v)  an English sentence about the value
     cost     how many inputs it takes at most
     once     whether it acts at once, so that a wrong choice ends the task
     native   its controls that can be disabled */
"use strict";

const click = (node) => ({ do: "click", node });
const typed = (content) => ({ do: "type", content });
const key = (name) => ({ do: "hotkey", key: name });
const drag = (node, to) => ({ do: "drag", node, to });

/* A part that is hidden until `opener()` is clicked. */
const closed = (node, opener) => Object.assign(node, { hidden: true, opener });
/* A list over the page that a button opens; a click elsewhere or Escape closes it. */
const popup = (button, list) => {
  closed(list, () => button);
  list.classList.add("popup");
  button.setAttribute("aria-expanded", "false");
  const show = (open) => { list.hidden = !open; button.setAttribute("aria-expanded", String(open)); };
  button.addEventListener("click", () => show(list.hidden));
  addEventListener("mousedown", ({ target }) => { if (!list.contains(target) && !button.contains(target)) show(false); });
  addEventListener("keydown", ({ key }) => { if (key === "Escape") show(false); });
  list.closes = () => show(false);
  return list;
};
let numbered = 0;
/* A label with its control: above it, or next to it. */
const labelled = (p, name, control, ...after) => {
  control.id = `part${numbered++}`;
  return el(p.chance.test(0.7) ? "div.widget.above" : "div.widget.beside", {}, el("label.name", { for: control.id }, name), control, ...after);
};
const captioned = (name, ...inside) => el("div.widget", { "aria-label": name, role: "group" }, el("span.name", {}, name), ...inside);
const other = (p, list, now) => p.chance.pick(list.filter((one) => one !== now));
const said = (kind, name) => (value) => (value === "" ? `The ${kind} ${name} is empty now.` : `The ${kind} ${name} now has “${value}”.`);
const typing = (field, value) => {
  if (document.activeElement !== field) return click(field);
  return field.value && getSelection().toString() !== field.value && field.selectionEnd - field.selectionStart < field.value.length
    ? key("ctrl a") : typed(value);
};
const field = (p, kind, about, make = (text) => text.value(), ask = ["Write {v} in {n}", "Fill {n} with {v}", "Put {v} into {n}"]) => {
  const name = p.name(), filled = p.chance.test(0.2);
  const input = el(kind === "text area" ? "textarea.area" : "input.field", about);
  if (filled) input.value = make(p.text);
  else if (p.chance.test(0.2) && kind !== "password") input.placeholder = p.text.word();
  const node = labelled(p, name, input);
  return { name, node, ask, get: () => input.value, want: () => make(p.text), next: (value) => typing(input, value),
    tell: kind === "password" ? () => `Something was typed into the password ${name}.` : said(kind, name), cost: filled ? 3 : 2, native: [input] };
};
/* Buttons of which the last pressed one is the value. */
const pressed = (p, name, nodes, names, more) => {
  let last = "";
  nodes.forEach((node, at) => node.addEventListener("click", () => { last = names[at]; }));
  return { name, get: () => last, want: () => p.chance.pick(names), next: (value) => click(nodes[names.indexOf(value)]),
    tell: (value) => `${value} was pressed.`, cost: 1, once: true, ...more };
};
/* Items of which one is chosen. */
const chosen = (p, name, nodes, names, on, more, mark = "aria-selected") => {
  const show = (value) => nodes.forEach((node, at) => {
    node.classList.toggle("on", names[at] === value);
    node.setAttribute(mark, String(names[at] === value));
    node.checked = names[at] === value;
  });
  let value = on;
  show(on);
  nodes.forEach((node, at) => node.addEventListener("click", () => { value = names[at]; show(value); }));
  return { name, get: () => value, want: () => other(p, names, value), next: (wanted) => click(nodes[names.indexOf(wanted)]),
    tell: (now) => `${now} is now chosen in ${name}.`, cost: 1, ...more };
};
const items = (tag, names, about = {}) => names.map((name) => el(tag, about, name));

/* A month to pick days from. */
const month = (p, name, day) => {
  let [at, picked] = [p.chance.int(0, 10), ""];
  const title = el("span.title"), grid = el("div.days"), node = el("div.month");
  const draw = () => {
    title.textContent = `${MONTHS[at]} 2031`;
    const first = new Date(2031, at, 1).getDay(), days = new Date(2031, at + 1, 0).getDate();
    grid.replaceChildren(...Array.from({ length: first }, () => el("span.gap")), ...Array.from({ length: days }, (_, date) => {
      const value = `${date + 1} ${MONTHS[at]}`;
      return el(value === picked ? "button.day.on" : "button.day", { type: "button", click: () => { picked = value; draw(); day(value); } }, String(date + 1));
    }));
  };
  const turn = (by) => el("button.press", { type: "button", "aria-label": by < 0 ? "Earlier" : "Later", click: () => { at = Math.max(0, Math.min(11, at + by)); draw(); } }, icon(by < 0 ? "left" : "right"));
  const [earlier, later] = [turn(-1), turn(1)];
  draw();
  node.append(el("div.line", {}, earlier, title, later), grid);
  return { node, get: () => picked, want: () => `${p.chance.int(1, 28)} ${MONTHS[Math.max(0, Math.min(11, at + p.chance.pick([0, 0, 1, -1])))]}`,
    next: (value) => {
      const [date, wanted] = value.split(" "), gap = MONTHS.indexOf(wanted) - at;
      return click(gap ? (gap < 0 ? earlier : later) : [...grid.querySelectorAll(".day")][date - 1]);
    } };
};

const WIDGETS = {
  "text field": (p) => field(p, "field", { type: "text" }),
  "password": (p) => field(p, "password", { type: "password" }, (text) => text.code(), ["Use {v} for {n}", "Enter {v} as {n}"]),
  "text area": (p) => field(p, "text area", {}, (text) => text.sentence(text.chance.int(2, 5)), ["Note {v} under {n}", "Write {v} in {n}"]),
  "number": (p) => field(p, "number", { type: "text", inputmode: "numeric", size: 6 }, (text) => text.number(), ["Set {n} to {v}", "Give {n} as {v}"]),
  "search box": (p) => {
    const name = p.name(), input = el("input.field", { type: "search", placeholder: name, "aria-label": name }), found = el("span.found");
    let asked = "";
    const node = el("div.widget", {}, el("div.line", {}, icon("lens"), input), found);
    input.addEventListener("keydown", ({ key }) => { if (key === "Enter") { asked = input.value; found.textContent = `${p.chance.int(0, 9)} found`; } });
    return { name, node, cost: 3, native: [input], get: () => asked, want: () => p.text.word(), ask: ["Look up {v} in {n}", "Search {n} for {v} with Enter"],
      next: (value) => (input.value === value && document.activeElement === input ? key("enter") : typing(input, value)), tell: (value) => `${name} was searched for “${value}”.` };
  },
  "check box": (p) => {
    const name = p.name(), input = el("input.round", { type: "checkbox", checked: p.chance.test(0.4), id: `part${numbered++}` });
    const node = el("div.widget", {}, el("div.tick", {}, input, el("label.name", { for: input.id }, name)));
    return { name, node, cost: 1, native: [input], get: () => (input.checked ? "ticked" : "unticked"), want: () => (input.checked ? "unticked" : "ticked"),
      ask: ["Make sure that {n} is {v}", "Leave {n} {v}"], next: () => click(input), tell: () => `The check box ${name} is now ${input.checked ? "checked" : "not checked"}.` };
  },
  "switch": (p) => {
    const name = p.name(), on = p.chance.test(0.4), node = el("button.lever", { type: "button", role: "switch", id: `part${numbered++}` });
    const show = (value) => { node.classList.toggle("on", value); node.setAttribute("aria-checked", String(value)); };
    const get = () => (node.getAttribute("aria-checked") === "true" ? "on" : "off");
    show(on);
    node.addEventListener("click", () => show(get() === "off"));
    return { name, node: el("div.widget", {}, el("div.tick", {}, node, el("label.name", { for: node.id }, name))), cost: 1, native: [node], get,
      want: () => (get() === "on" ? "off" : "on"), ask: ["Turn {n} {v}", "Have {n} {v}"], next: () => click(node), tell: (value) => `The switch ${name} is now ${value}.` };
  },
  "radio": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(2, 4)), on = p.chance.test(0.5) ? p.chance.pick(names) : "", group = `group${numbered++}`;
    const nodes = names.map((one) => el("input.round", { type: "radio", name: group, id: `part${numbered++}`, checked: one === on }));
    const get = () => names[nodes.findIndex((one) => one.checked)] ?? "";
    const node = captioned(name, ...nodes.map((one, at) => el("div.tick", {}, one, el("label.name", { for: one.id }, names[at]))));
    return { name, node, cost: 1, native: nodes, get, want: () => other(p, names, get()), ask: ["Choose {v} for {n}", "{n} should be {v}"],
      next: (value) => click(nodes[names.indexOf(value)]), tell: (value) => `The option ${value} of ${name} is now chosen.` };
  },
  "segmented": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(2, 3), 1), nodes = items("button.press", names, { type: "button", role: "radio" });
    return chosen(p, name, nodes, names, p.chance.pick(names), { node: captioned(name, el("div.line", { role: "radiogroup" }, ...nodes)), native: nodes, ask: ["Switch {n} over to {v}", "Set {n} to {v}"] }, "aria-checked");
  },
  "select": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(3, 5)), list = el("select.picker", {}, el("button", { type: "button" }, document.createElement("selectedcontent")), ...items("option", names));
    return { name, node: labelled(p, name, list), cost: 2, native: [list], get: () => list.value, want: () => other(p, names, list.value), ask: ["Take {v} from {n}", "Choose {v} in {n}"],
      next: (value) => click(list.matches(":open") ? list.options[names.indexOf(value)] : list), tell: said("list", name) };
  },
  "combo": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(3, 5)), input = el("input.field", { type: "text", role: "combobox" });
    const nodes = items("li.choice", names, { role: "option" }), list = el("ul", { role: "listbox" }, ...nodes);
    const node = labelled(p, name, input, list);
    popup(input, list);
    input.addEventListener("input", () => { list.hidden = false; nodes.forEach((one, at) => { one.hidden = !names[at].toLowerCase().includes(input.value.toLowerCase()); }); });
    nodes.forEach((one, at) => one.addEventListener("click", () => { input.value = names[at]; list.closes(); }));
    return { name, node, cost: 2, native: [input], get: () => input.value, want: () => p.chance.pick(names), ask: ["Take {v} for {n}", "Pick {v} as {n}"], next: (value) => click(nodes[names.indexOf(value)]), tell: said("field", name) };
  },
  "slider": (p) => {
    const name = p.name(), most = p.chance.int(4, 10), now = p.chance.int(0, most), shown = el("output.now", {}, ` ${now}`);
    const input = el("input.slide", { type: "range", min: 0, max: most, value: now });
    const x = (value, box) => box.left + box.height / 2 + (box.width - box.height) * (value / most);
    input.addEventListener("input", () => { shown.textContent = ` ${input.value}`; });
    const node = el("div.widget", {}, el("label.name", { for: input.id = `part${numbered++}` }, name), input, shown);
    return { name, node, cost: 1, native: [input], get: () => input.value, want: () => other(p, Array.from({ length: most + 1 }, (_, at) => String(at)), input.value), ask: ["Move {n} to {v}", "Slide {n} to {v}"],
      next: (value) => ({ ...drag(input, (box) => [x(Number(value), box), box.top + box.height / 2]), from: (box) => [x(Number(input.value), box), box.top + box.height / 2] }), tell: (value) => `The slider ${name} is now at ${value}.` };
  },
  "date": (p) => {
    const name = p.name(), shown = el("button.press", { type: "button" }, "Any day"), list = el("div.popup");
    const part = month(p, name, (value) => { shown.textContent = value; list.closes(); });
    list.append(part.node);
    const node = labelled(p, name, shown, list);
    popup(shown, list);
    return { ...part, name, node, cost: 3, native: [shown], ask: ["Set {n} to {v}", "Pick {v} for {n}"], tell: (value) => `The date ${name} is now ${value}.` };
  },
  "calendar": (p) => {
    const name = p.name(), part = month(p, name, () => null);
    return { ...part, name, node: captioned(name, part.node), cost: 2, ask: ["Mark {v} under {n}", "Choose {v} under {n}"], tell: (value) => `The day ${value} is now marked in ${name}.` };
  },
  "time": (p) => {
    const name = p.name(), first = p.chance.int(6, 14), names = Array.from({ length: 6 }, (_, at) => `${first + Math.floor(at / 2)}:${at % 2 ? "30" : "00"}`);
    const shown = el("button.press", { type: "button" }, "Any time"), nodes = items("div.choice", names, { role: "option" }), list = el("div.scroller", {}, ...nodes);
    const node = labelled(p, name, shown, list);
    popup(shown, list);
    nodes.forEach((one, at) => one.addEventListener("click", () => { shown.textContent = names[at]; list.closes(); }));
    return { name, node, cost: 3, native: [shown], get: () => (names.includes(shown.textContent) ? shown.textContent : ""), want: () => p.chance.pick(names), ask: ["Set {n} to {v}", "Plan {n} at {v}"], next: (value) => click(nodes[names.indexOf(value)]), tell: (value) => `The time ${name} is now ${value}.` };
  },
  "stepper": (p) => {
    const name = p.name(), start = p.chance.int(1, 9), shown = el("output.now", {}, String(start));
    const turn = (by) => el("button.press", { type: "button", "aria-label": by < 0 ? `Less ${name}` : `More ${name}`, click: () => { shown.textContent = String(Number(shown.textContent) + by); } }, by < 0 ? "-" : "+");
    const [less, more] = [turn(-1), turn(1)];
    return { name, node: captioned(name, el("div.line", {}, less, shown, more)), cost: 2, native: [less, more], get: () => shown.textContent, want: () => String(start + p.chance.pick([-1, 1, 2])), ask: ["Set {n} to {v}", "Bring {n} to {v}"],
      next: (value) => click(Number(value) < Number(shown.textContent) ? less : more), tell: (value) => `The number ${name} is now ${value}.` };
  },
  "tabs": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(2, 3), 1), nodes = items("button.tab", names, { type: "button", role: "tab" });
    const texts = names.map(() => p.text.sentence(p.chance.int(3, 6))), shown = el("p.panel");
    const part = chosen(p, name, nodes, names, names[0], { node: el("div.widget", {}, el("div.line", { role: "tablist" }, ...nodes), shown), ask: ["Open the tab {v}", "Go to the tab {v}"], tell: (value) => `The tab ${value} is now open.` });
    const show = () => { shown.textContent = texts[names.indexOf(part.get())]; };
    show();
    nodes.forEach((one) => one.addEventListener("click", show));
    return part;
  },
  "menu": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(3, 5)), button = el("button.press", { type: "button" }, name), nodes = items("div.item", names, { role: "menuitem" });
    const list = el("div", { role: "menu" }, ...nodes), node = el("div.widget", {}, button, list);
    popup(button, list);
    nodes.forEach((one) => one.addEventListener("click", () => list.closes()));
    return pressed(p, name, nodes, names, { node, cost: 2, ask: ["Open {n} and choose {v}", "In the menu {n} use {v}"] });
  },
  "context menu": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(2, 4)), shown = el("div.panel", { tabindex: 0 }, name), nodes = items("div.item", names, { role: "menuitem" }), list = el("div", { role: "menu" }, ...nodes);
    popup(el("button", {}), list);
    shown.addEventListener("contextmenu", (event) => { event.preventDefault(); list.hidden = false; });
    list.opener = () => ({ do: "right_single", node: shown });
    nodes.forEach((one) => one.addEventListener("click", () => list.closes()));
    return pressed(p, name, nodes, names, { node: el("div.widget", {}, shown, list), cost: 2, ask: ["Right-click {n} and choose {v}", "Use {v} from the context menu of {n}"] });
  },
  "accordion": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(2, 4));
    const parts = names.map((one) => [el("button.row", { type: "button", "aria-expanded": "false" }, one, icon("down")), closed(el("p.faint", {}, p.text.sentence(p.chance.int(3, 7))))]);
    parts.forEach(([head, body]) => { body.opener = () => head; head.style.width = "100%"; head.addEventListener("click", () => { body.hidden = !body.hidden; head.setAttribute("aria-expanded", String(!body.hidden)); }); });
    const get = () => names.filter((_, at) => !parts[at][1].hidden).join(" and ");
    return { name, node: captioned(name, el("div.box", {}, ...parts.flat())), cost: 1, get, want: () => p.chance.pick(names), ask: ["Unfold {v} under {n}", "Show the part {v} of {n}"], next: (value) => click(parts[names.indexOf(value)][0]), tell: (value) => (value ? `${value} of ${name} is now open.` : `${name} is now closed.`) };
  },
  "tree": (p) => {
    const name = p.name(), tops = p.text.names(2, 1), leaves = tops.map(() => p.text.names(p.chance.int(2, 3), 1)), names = leaves.flat();
    const nodes = items("div.choice", names, { role: "treeitem" });
    const branches = tops.map((top, at) => {
      const inner = closed(el("div.branch", {}, ...nodes.splice(0, 0), ...nodes.filter((_, one) => leaves[at].includes(names[one]))));
      const knob = el("button.knob", { type: "button", "aria-label": top, "aria-expanded": "false", click: () => { inner.hidden = !inner.hidden; knob.setAttribute("aria-expanded", String(!inner.hidden)); knob.replaceChildren(icon(inner.hidden ? "right" : "down")); } }, icon("right"));
      inner.opener = () => knob;
      return el("div.trunk", {}, el("div.twig", {}, knob, el("span.title", {}, top)), inner);
    });
    return chosen(p, name, nodes, names, "", { node: captioned(name, el("div.box", { role: "tree" }, ...branches)), cost: 2, ask: ["Find and choose {v} in {n}", "Pick the entry {v} of {n}"] });
  },
  "list box": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(3, 5)), nodes = items("div.choice", names, { role: "option" });
    return chosen(p, name, nodes, names, p.chance.test(0.4) ? names[0] : "", { node: captioned(name, el("div.box", { role: "listbox" }, ...nodes)), ask: ["Mark {v} in the list {n}", "Choose {v} in {n}"] });
  },
  "scroll box": (p) => {
    const name = p.name(), names = p.text.names(8, 1), nodes = items("div.choice", names, { role: "option" });
    return chosen(p, name, nodes, names, "", { node: captioned(name, el("div.box.scroller", {}, ...nodes)), cost: 2, ask: ["Find {v} in {n} and mark it", "Choose {v} in {n}"] });
  },
  "sorted table": (p) => {
    const name = p.name(), heads = p.text.names(2, 1), rows = Array.from({ length: p.chance.int(2, 4) }, () => [p.text.word(), p.text.number()]);
    const body = el("tbody"), buttons = items("button.press", heads, { type: "button" });
    let by = "";
    const draw = () => body.replaceChildren(...rows.map((row) => el("tr.record", {}, ...row.map((one) => el("td.cell", {}, one)))));
    buttons.forEach((one, at) => one.addEventListener("click", () => { by = heads[at]; rows.sort((a, b) => (at ? a[at] - b[at] : a[at] < b[at] ? -1 : 1)); draw(); }));
    draw();
    return { name, node: captioned(name, el("table.sheet", {}, el("thead", {}, el("tr.heads", {}, ...buttons.map((one) => el("th.head", {}, one)))), body)), cost: 1, get: () => by, want: () => p.chance.pick(heads), ask: ["Sort {n} by {v}", "Order the table {n} by {v}"], next: (value) => click(buttons[heads.indexOf(value)]), tell: (value) => `The table ${name} is now sorted by ${value}.` };
  },
  "row table": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(2, 4), 1), word = p.chance.pick(["Edit", "View", "Copy"]);
    const buttons = names.map((one) => el("button.press", { type: "button", "aria-label": `${word} ${one}` }, word));
    const node = captioned(name, el("table.sheet", {}, el("tbody", {}, ...names.map((one, at) => el("tr.record", {}, el("td.cell", {}, one), el("td.cell", {}, p.text.price()), el("td.cell", {}, buttons[at]))))));
    return pressed(p, name, buttons, names, { node, native: buttons, ask: [`Press ${word} in the row {v}`, `Use ${word} next to {v}`], tell: (value) => `${word} was pressed for ${value}.` });
  },
  "pagination": (p) => {
    const name = p.name(), count = p.chance.int(3, 6), names = Array.from({ length: count }, (_, at) => String(at + 1)), nodes = items("button.press", names, { type: "button" });
    return chosen(p, name, nodes, names, "1", { node: el("div.widget", {}, el("span.name", {}, name), el("div.line", {}, ...nodes)), native: nodes, ask: ["Turn to page {v} of {n}", "Show page {v} of {n}"], tell: (value) => `Page ${value} of ${name} is now shown.` }, "aria-current");
  },
  "dialog": (p) => {
    const name = p.name(), names = p.chance.pick([["Keep", "Discard"], ["Accept", "Decline"], ["Continue", "Stop"]]), button = el("button.press", { type: "button" }, name), nodes = items("button.press", names, { type: "button" });
    const list = el("div.window", { role: "dialog" }, el("div.titled", {}, name), el("p.text", {}, p.text.sentence(4)), el("div.line", {}, ...nodes)), node = el("div.widget", {}, button, list);
    popup(button, list);
    nodes.forEach((one) => one.addEventListener("click", () => list.closes()));
    return pressed(p, name, nodes, names, { node, cost: 2, ask: ["Open {n} and answer {v}", "Answer {v} in the dialog {n}"], tell: (value) => `The dialog ${name} was answered with ${value}.` });
  },
  "toast": (p) => {
    const name = p.name(), shut = el("button.press", { type: "button", "aria-label": `Hide ${name}` }, icon("cross")), button = el("button.press", { type: "button" }, name);
    const note = closed(el("div.toast", { role: "status" }, el("span.text", {}, p.text.sentence(3)), shut), () => button);
    let gone = "";
    button.addEventListener("click", () => { note.hidden = false; });
    shut.addEventListener("click", () => { note.hidden = true; gone = "hidden"; });
    return { name, node: el("div.widget", {}, button, note), cost: 2, get: () => gone, want: () => "hidden", ask: ["Press {n} and close the message", "Call up {n}, then put its message away"], next: () => click(shut), tell: () => `The message of ${name} is closed.` };
  },
  "hinted icons": (p) => {
    const kinds = p.chance.some(Object.keys(ICONS), p.chance.int(2, 4)), names = p.text.names(kinds.length), nodes = kinds.map((kind, at) => el("button.press", { type: "button", "aria-label": names[at] }, icon(kind)));
    return pressed(p, p.name(), nodes, names, { node: el("div.widget.line", {}, ...nodes.map((one, at) => el("span.hinted", {}, one, el("span.tip", {}, names[at])))), native: nodes, ask: ["Press the icon with the hint {v}", "Use the icon that is called {v}"] });
  },
  "icon button": (p) => {
    const calls = { plus: "plus", cross: "cross", tick: "tick", left: "left arrow", right: "right arrow", up: "up arrow", down: "down arrow", lens: "lens", house: "house", bin: "bin", play: "play", letter: "letter", flag: "flag", lock: "lock", eye: "eye" };
    const kinds = p.chance.some(Object.keys(calls), p.chance.int(2, 5)), names = kinds.map((kind) => calls[kind]), nodes = kinds.map((kind, at) => el("button.press", { type: "button", "aria-label": names[at] }, icon(kind)));
    return pressed(p, p.name(), nodes, names, { node: el("div.widget.line", {}, ...nodes), native: nodes, ask: ["Press the icon {v}", "Use the {v} icon"], tell: (value) => `The icon ${value} was pressed.` });
  },
  "star rating": (p) => {
    const name = p.name(), names = ["1", "2", "3", "4", "5"], nodes = names.map((one) => el("button.star", { type: "button", "aria-label": `${one} of 5` }));
    let value = String(p.chance.int(0, 3));
    const show = () => nodes.forEach((one, at) => one.classList.toggle("on", at < Number(value)));
    show();
    nodes.forEach((one, at) => one.addEventListener("click", () => { value = names[at]; show(); }));
    return { name, node: captioned(name, el("div.line", {}, ...nodes)), cost: 1, native: nodes, get: () => value, want: () => other(p, names, value), ask: ["Give {n} {v} of five stars", "Rate {n} with {v} of five stars"], next: (wanted) => click(nodes[wanted - 1]), tell: (now) => `${name} now has ${now} of 5 stars.` };
  },
  "chips": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(2, 4), 1), nodes = items("button.chip", names, { type: "button" });
    return chosen(p, name, nodes, names, "", { node: captioned(name, el("div.line", {}, ...nodes)), native: nodes, ask: ["Choose the chip {v} of {n}", "Filter {n} by {v}"] }, "aria-pressed");
  },
  "tags": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(2, 4), 1), line = el("div.line"), gone = [];
    const nodes = names.map((one) => el("button.knob", { type: "button", "aria-label": `Drop ${one}` }, icon("cross")));
    nodes.forEach((one, at) => { const chip = el("span.chip", {}, names[at], one); one.addEventListener("click", () => { chip.remove(); gone.push(names[at]); }); line.append(chip); });
    return { name, node: captioned(name, line), cost: 1, native: nodes, get: () => gone.join(" and "), want: () => p.chance.pick(names), ask: ["Remove {v} from {n}", "Take {v} out of {n}"], next: (value) => click(nodes[names.indexOf(value)]), tell: (value) => `${value} is gone from ${name}.` };
  },
  "colour swatch": (p) => {
    const name = p.name(), names = p.chance.some(Object.keys(COLOURS), p.chance.int(3, 6)), nodes = names.map((one) => el("button.swatch", { type: "button", "aria-label": one, style: `background:${COLOURS[one]}` }));
    return chosen(p, name, nodes, names, "", { node: captioned(name, el("div.line", {}, ...nodes)), native: nodes, ask: ["Choose the colour {v} for {n}", "Paint {n} in {v}"], tell: (value) => `The colour of ${name} is now ${value}.` }, "aria-pressed");
  },
  "drag list": (p) => {
    const name = p.name(), names = p.text.names(p.chance.int(3, 4), 1), box = el("div.box", {}, ...items("div.grip", names)), first = names.join();
    let held = null;
    for (const one of box.children) one.addEventListener("mousedown", () => { held = one; one.classList.add("held"); });
    addEventListener("mouseup", ({ clientX, clientY }) => {
      const over = held && document.elementFromPoint(clientX, clientY)?.closest(".grip");
      held?.classList.remove("held");
      if (over && over !== held && box.contains(over)) (held.compareDocumentPosition(over) & 4 ? over.after(held) : over.before(held));
      held = null;
    });
    const at = (one) => [...box.children].find((node) => node.textContent === one), order = () => [...box.children].map((node) => node.textContent);
    return { name, node: captioned(name, box), cost: 1, get: () => (order().join() === first ? "" : order()[0] !== names[0] ? order()[0] : order().join()), want: () => p.chance.pick(names.slice(1)), ask: ["Drag {v} to the top of {n}", "Make {v} the first in {n}"], next: (value) => drag(at(value), box.firstChild), tell: () => `The order in ${name} is now ${order().join(", ")}.` };
  },
  "drop zone": (p) => {
    const name = p.name(), chips = p.text.names(2, 1), zones = p.text.names(2, 1), line = el("div.line", {}, ...items("div.grip", chips)), bins = items("div.bin", zones);
    let [held, moved] = [null, ""];
    for (const one of line.children) { one.style.width = "fit-content"; one.addEventListener("mousedown", () => { held = one; one.classList.add("held"); }); }
    addEventListener("mouseup", ({ clientX, clientY }) => {
      const bin = held && document.elementFromPoint(clientX, clientY)?.closest(".bin");
      held?.classList.remove("held");
      if (bin && bins.includes(bin)) { moved = `${held.textContent} to ${zones[bins.indexOf(bin)]}`; bin.append(held); }
      held = null;
    });
    const wanted = chips.flatMap((chip) => zones.map((zone) => `${chip} to ${zone}`)), grips = [...line.children];
    return { name, node: captioned(name, line, el("div.line", {}, ...bins)), cost: 1, get: () => moved, want: () => p.chance.pick(wanted), bare: true, ask: ["Drag {v}", "Carry {v} in {n}"],
      next: (value) => drag(grips[wanted.indexOf(value) >> 1], bins[wanted.indexOf(value) & 1]), tell: (value) => `Moved ${value}.` };
  },
  "link": (p) => {
    const names = p.text.names(p.chance.int(1, 3)), nodes = items("a.link", names, { href: "#part" });
    nodes.forEach((one) => one.addEventListener("click", (event) => event.preventDefault()));
    return pressed(p, p.name(), nodes, names, { node: el("p.widget", {}, `${p.text.sentence(3)} `, ...nodes.flatMap((one) => [one, ` ${p.text.word()} `])), ask: ["Follow the link {v}", "Go to {v}"], tell: (value) => `The link ${value} was followed.` });
  },
  "breadcrumb": (p) => {
    const names = p.text.names(p.chance.int(2, 3), 1), nodes = items("a.link", names, { href: "#part" });
    nodes.forEach((one) => one.addEventListener("click", (event) => event.preventDefault()));
    return pressed(p, p.name(), nodes, names, { node: el("div.widget.line", {}, ...nodes.flatMap((one) => [one, el("span.faint", {}, "/")]), el("span.title", {}, p.name(1))), ask: ["Go back up to {v}", "Use {v} in the path"], tell: (value) => `The path went to ${value}.` });
  },
  "buttons": (p) => {
    const names = p.text.names(p.chance.int(1, 3)), nodes = items(p.chance.test(0.3) ? "button.press.strong" : "button.press", names, { type: "button" });
    return pressed(p, p.name(), nodes, names, { node: el("div.widget.line", {}, ...nodes), native: nodes, ask: ["Press {v}", "Use the button {v}"] });
  },
  "double click": (p) => {
    const names = p.text.names(p.chance.int(2, 3), 1), nodes = names.map((one) => el("div.choice", { tabindex: 0 }, icon("letter"), " ", one));
    let opened = "";
    nodes.forEach((one, at) => one.addEventListener("dblclick", () => { opened = names[at]; }));
    return { name: p.name(), node: el("div.widget.box", {}, ...nodes), cost: 1, once: true, get: () => opened, want: () => p.chance.pick(names), ask: ["Open the file {v}", "Double-click {v}"], next: (value) => ({ do: "left_double", node: nodes[names.indexOf(value)] }), tell: (value) => `The file ${value} was opened.` };
  },
  "editable text": (p) => {
    const name = p.name(), shown = el("div.row", { tabindex: 0 }, p.text.word()), input = el("input.field", { type: "text", "aria-label": name }), part = el("div", {}, shown);
    shown.addEventListener("dblclick", () => { input.value = ""; shown.replaceWith(input); input.focus(); });
    const done = () => { if (input.isConnected) { shown.textContent = input.value || shown.textContent; input.replaceWith(shown); } };
    input.addEventListener("keydown", ({ key }) => { if (key === "Enter") done(); });
    return { name, node: captioned(name, part), cost: 2, get: () => shown.textContent, want: () => p.text.word(), ask: ["Change {n} to {v} by a double click", "Edit {n} so that it reads {v}"], next: (value) => (input.isConnected ? typed(`${value}\n`) : { do: "left_double", node: shown }), tell: (value) => `The text ${name} is now “${value}”.` };
  },
  "progress": (p) => {
    const share = p.chance.int(5, 95);
    return { name: p.name(), get: () => String(share), node: el("div.widget", {}, el("span.name", {}, `${p.name()} ${share} %`), el("div.gauge", {}, el("div.part", { style: `width:${share}%` }))) };
  },
};
