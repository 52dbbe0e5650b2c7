/* The arrangements. Each gets the page's maker `p`, the nodes of the widgets and the last button (or null), and returns
   what stands on the page. Parts that open others (`closed`) keep what they open reachable. */
"use strict";

const stack = (...inside) => el("div.stack", {}, inside);
const line = (...inside) => el("div.line", {}, inside);
const grid = (columns, ...inside) => el("div.grid", { style: `grid-template-columns:repeat(${columns},minmax(0,1fr))` }, inside);
const panel = (...inside) => el("div.panel", {}, inside);
const bar = (...inside) => el("div.bar", {}, inside);
/* Two parts next to each other, or one below the other where there is no room. */
const split = (p, edge, main, last = false) => el(innerWidth / p.px < 22 ? "div.stack" : "div.split", {}, last ? [main, edge] : [edge, main]);
const main = (...inside) => el("div.main", {}, inside);
const edge = (...inside) => el("div.edge", {}, inside);
const head = (p, tag = "h1") => el(tag, {}, p.text.cased(`${p.text.word()} ${p.text.word()}`));
const prose = (p, least = 4, most = 12) => el("p.text", {}, p.text.sentence(p.chance.int(least, p.small ? Math.min(most, 6) : most)));
const faint = (text) => el("span.faint", {}, text);
const times = (count, make) => Array.from({ length: count }, (_, at) => make(at));
/* The widgets in `count` heaps. */
const heaps = (nodes, count) => times(count, (heap) => nodes.filter((_, at) => at % count === heap)).filter((heap) => heap.length);
const halves = (nodes) => [nodes.slice(0, Math.ceil(nodes.length / 2)), nodes.slice(Math.ceil(nodes.length / 2))];
const between = (nodes, make) => nodes.flatMap((node) => [make(), node]);
const art = (p) => el("div.art", { style: `filter:hue-rotate(${p.chance.int(0, 11) * 30}deg)` });
const spot = (p) => el("span.spot", {}, p.text.cased(p.text.word())[0]);
/* A row of a text and what belongs to it. */
const pair = (name, about) => el("div.row", {}, el("span.title", {}, name), el("span.faint", {}, about));
/* How many columns of widgets fit. */
const columns = (p, most) => Math.max(1, Math.min(most, Math.floor(innerWidth / (13 * p.px))));

/* Views of which one is open, by buttons of which each opens one. */
const views = (heaps, buttons) => {
  const nodes = heaps.map((heap, at) => (at ? closed : (node) => node)(stack(heap), () => buttons[at]));
  nodes[0].opener = () => buttons[0];
  buttons.forEach((one, at) => one.addEventListener("click", () => {
    nodes.forEach((node, other) => { node.hidden = other !== at; });
    buttons.forEach((other) => { other.classList.toggle("on", other === one); other.setAttribute("aria-selected", String(other === one)); });
  }));
  buttons[0].classList.add("on");
  buttons.forEach((one, at) => one.setAttribute("aria-selected", String(!at)));
  return nodes;
};
const tabbed = (p, heaps, tag = "button.tab") => {
  const buttons = heaps.map(() => el(tag, { type: "button", role: "tab" }, p.name(1)));
  return [buttons, views(heaps, buttons)];
};
/* Views one after the other, with buttons to the next and to the one before. */
const walked = (p, heaps, [back, next], place) => {
  let at = 0;
  const [earlier, later] = [back, next].map((inside) => el("button.press", { type: "button", "aria-label": typeof inside === "string" ? inside : inside.getAttribute("aria-label") }, inside));
  const nodes = heaps.map((heap, number) => closed(stack(heap), () => (number > at ? later : earlier)));
  const show = (to) => { at = Math.max(0, Math.min(nodes.length - 1, to)); nodes.forEach((node, number) => { node.hidden = number !== at; }); place(at, nodes.length); };
  earlier.addEventListener("click", () => show(at - 1));
  later.addEventListener("click", () => show(at + 1));
  show(0);
  return [nodes, earlier, later];
};
/* A part that a button opens and shuts. */
const opened = (button, node) => {
  closed(node, () => button);
  button.addEventListener("click", () => { node.hidden = !node.hidden; });
  return [button, node];
};
const press = (inside, about = {}) => el("button.press", { type: "button", ...about }, inside);
const shown = (name, label) => Object.assign(icon(name), { getAttribute: () => label });

const LAYOUTS = {
  "form": (p, w, end) => stack(head(p), w, end),
  "two-columns": (p, w, end) => stack(head(p), grid(columns(p, 2), halves(w).map((half) => stack(half))), end),
  "three-columns": (p, w, end) => stack(grid(columns(p, 3), heaps(w, 3).map((heap) => stack(head(p, "h2"), heap))), end),
  "tabs": (p, w, end) => { const [buttons, nodes] = tabbed(p, heaps(w, Math.min(3, Math.max(2, w.length)))); return stack(line(buttons), panel(nodes), end); },
  "side-tabs": (p, w, end) => { const [buttons, nodes] = tabbed(p, halves(w).filter((half) => half.length), "button.row"); return stack(head(p), split(p, edge(buttons), main(nodes)), end); },
  "list": (p, w, end) => stack(head(p), w.map((one) => el("div.row", {}, one, faint(p.text.day()))), end),
  "table": (p, w, end) => stack(head(p), el("table.sheet", {}, el("tbody", {}, ...w.map((one) => el("tr.record", {}, el("td.cell", { style: "width:28%" }, p.text.sentence(2)), el("td.cell", {}, one))))), end),
  "dialog": (p, w, end) => stack(prose(p, 8, 20), el("div.window.centre", { role: "dialog" }, el("div.titled", {}, p.text.cased(p.text.word())), stack(w, end)), prose(p)),
  "card-grid": (p, w, end) => stack(head(p), grid(columns(p, 2), w.map((one) => panel(el("h2", {}, p.text.cased(p.text.word())), one))), end),
  "menu-bar": (p, w, end) => stack(bar(times(3, () => el("span.title", {}, p.text.cased(p.text.word())))), w, end),
  "toolbar": (p, w, end) => stack(bar(p.chance.some(Object.keys(ICONS), 5).map(icon), el("span.end", {}, p.text.word())), head(p), w, end),
  "wizard": (p, w, end) => {
    const where = el("p.faint"), [nodes, back, next] = walked(p, halves(w).filter((half) => half.length), ["Back", "Next"], (at, of) => { where.textContent = `${p.part} ${at + 1} / ${of}`; });
    return stack(where, nodes, line(back, next, end));
  },
  "calendar-page": (p, w, end) => stack(head(p), el("div.days", {}, ...times(14, (at) => el("span.date", {}, String(at + 1)))), prose(p), w, end),
  "settings": (p, w, end) => stack(halves(w).map((half) => stack(head(p, "h2"), half.map((one) => el("div.row", {}, one)))), end),
  "mail": (p, w, end) => split(p, edge(times(p.small ? 2 : 5, () => el("div.row", {}, stack(el("b.who", {}, p.text.cased(p.text.word())), el("div.faint", {}, p.text.sentence(2)))))), main(head(p, "h2"), prose(p), w, end)),
  "chat": (p, w, end) => stack(times(p.small ? 2 : 4, (at) => el(at % 2 ? "div.bubble.mine" : "div.bubble", {}, p.text.sentence(p.chance.int(2, 6)))), w, end),
  "file-list": (p, w, end) => stack(bar(icon("house"), p.text.word()), times(3, () => pair(`${p.text.word()}.txt`, `${p.text.number()} kB`)), w, end),
  "player": (p, w, end) => stack(art(p), line(el("b.title", {}, p.text.cased(p.text.word())), faint(p.text.time())), el("div.gauge", {}, el("div.part", { style: `width:${p.chance.int(5, 90)}%` })), w, end),
  "cart": (p, w, end) => stack(head(p), times(2, () => pair(`${p.chance.int(1, 4)} x ${p.text.word()}`, p.text.price())), el("div.row", {}, el("b.title", {}, p.part), el("b.title", {}, p.text.price())), w, end),
  "sidebar": (p, w, end) => split(p, edge(panel(times(4, () => el("div.entry", {}, p.text.cased(p.text.word()))))), main(head(p), w, end)),
  "right-rail": (p, w, end) => split(p, edge(panel(head(p, "h2"), prose(p))), main(w, end), true),
  "hero": (p, w, end) => el("div.centre", { style: "text-align:center" }, head(p), prose(p), el("div.centre", { style: "text-align:left" }, stack(w, end))),
  "sign-in": (p, w, end) => el("div.window.centre", { style: "min-width:60%" }, el("div.centre", {}, spot(p)), head(p), w, end),
  "profile": (p, w, end) => stack(line(spot(p), el("div.who", {}, el("b.title", {}, p.text.cased(p.text.spelt())), el("div.faint", {}, p.text.mail()))), w, end),
  "article": (p, w, end) => stack(head(p), between(w, () => prose(p, 8, 30)), end),
  "dashboard": (p, w, end) => stack(grid(p.small ? 2 : 4, times(p.small ? 2 : 4, () => panel(faint(p.text.word()), el("h1", {}, p.text.number())))), grid(columns(p, 2), w.map((one) => panel(one))), end),
  "kanban": (p, w, end) => stack(grid(p.small ? 2 : 3, times(p.small ? 2 : 3, () => panel(head(p, "h2"), times(2, () => el("div.box", {}, p.text.sentence(2)))))), w, end),
  "timeline": (p, w, end) => stack(w.map((one) => split(p, el("div.edge", { style: "flex:0 0 4.2em" }, faint(p.text.day())), main(el("div.text", { style: "border-left:2px solid var(--accent);padding-left:6px" }, one)))), end),
  "folded-sections": (p, w, end) => stack(heaps(w, Math.min(3, w.length)).map((heap) => opened(el("button.row", { type: "button", style: "width:100%" }, p.name(1), icon("down")), panel(heap))), end),
  "split-panes": (p, w, end) => grid(columns(p, 2), halves(w).map((half, at) => el("div.pane", { style: `overflow:auto;height:${columns(p, 2) > 1 ? 88 : 47}vh;border:1px solid var(--line);padding:4px` }, head(p, "h2"), stack(half, at === 0 ? end : null)))),
  "gallery": (p, w, end) => stack(grid(3, times(3, () => stack(art(p), faint(p.text.word())))), w, end),
  "plans": (p, w, end) => stack(grid(2, times(2, () => panel(head(p, "h2"), el("b.title", {}, p.text.price()), el("div.faint", {}, p.text.sentence(3))))), w, end),
  "checkout": (p, w, end) => split(p, edge(panel(head(p, "h2"), times(2, () => pair(p.text.word(), p.text.price())))), main(w, end), true),
  "search-results": (p, w, end) => stack(w, times(2, () => stack(el("b.title", {}, p.text.sentence(3)), el("div.faint", {}, p.text.sentence(5)))), end),
  "receipt": (p, w, end) => el("div.window.centre", { style: "min-width:70%" }, el("div.text", {}, p.text.code()), times(3, () => pair(p.text.word(), p.text.price())), w, end),
  "map": (p, w, end) => stack(el("div.art", { style: "height:4em;position:relative" }, el("span.spot", { style: `position:absolute;left:${p.chance.int(5, 80)}%;top:20%` }, icon("pin"))), panel(w, end)),
  "log": (p, w, end) => stack(el("div.text", { style: "background:#10151a;color:#b7e4c7;padding:3px" }, ...times(3, () => el("div.entry", {}, `${p.text.time()} ${p.text.sentence(3)}`))), w, end),
  "drawer": (p, w, end) => { const [some, rest] = halves(w); return stack(bar(opened(press(shown("bars", p.more), { "aria-label": p.more }), panel(rest)), el("b.title", {}, p.text.word())), some, end); },
  "more": (p, w, end) => { const [some, rest] = halves(w); return stack(head(p), some, rest.length ? opened(press(p.more), panel(rest)) : null, end); },
  "bottom-bar": (p, w, end) => stack(head(p), prose(p), w, el("div.bar.low", {}, faint(p.text.word()), el("span.end", {}, end ?? p.text.word()))),
  "phone": (p, w, end) => stack(bar(icon("left"), el("b.centre", {}, p.text.cased(p.text.word()))), w.map((one) => panel(one)), end, el("div.bar.low", {}, ...p.chance.some(Object.keys(ICONS), 4).map((one) => el("span.centre", {}, icon(one))))),
  "survey": (p, w, end) => stack(w.map((one, at) => stack(el("p.text", {}, `${at + 1}. ${p.text.sentence(4)}`), one)), end),
  "sheet": (p, w, end) => stack(el("table.sheet", {}, el("tbody", {}, ...times(3, () => el("tr.record", {}, ...times(p.small ? 3 : 6, () => el("td.cell", {}, p.text.number())))))), w, end),
  "scattered": (p, w, end) => stack(w.map((one) => el("div.loose", { style: `margin-left:${p.chance.int(0, p.small ? 12 : 45)}%;margin-top:${p.chance.int(0, 18)}px;width:fit-content;max-width:${p.small ? 88 : 55}%` }, one)), end && el("div.loose", { style: `margin-left:${p.chance.int(0, 60)}%` }, end)),
  "running-text": (p, w, end) => stack(w.map((one) => stack(prose(p, 3, 8), one, prose(p, 3, 8))), end),
  "comparison": (p, w, end) => stack(grid(columns(p, 2), halves(w).map((half) => panel(head(p, "h2"), half, prose(p, 3, 6)))), end),
  "carousel": (p, w, end) => {
    const where = el("span.faint"), [nodes, back, next] = walked(p, heaps(w, Math.min(3, w.length)), [shown("left", "Slide back"), shown("right", "Slide on")], (at, of) => { where.textContent = `${at + 1} / ${of}`; });
    return stack(line(back, where, next), panel(nodes), end);
  },
  "window": (p, w, end) => el("div.window", { style: "margin:3px" }, el("div.titled", {}, el("span.title", {}, p.text.cased(p.text.word())), line(icon("down"), icon("cross"))), stack(w, end)),
  "long-page": (p, w, end) => stack(heaps(w, w.length).map((heap) => stack(head(p, "h2"), prose(p, 10, 40), heap, prose(p, 6, 30))), end),
  "property-grid": (p, w, end) => stack(bar(el("b.title", {}, p.text.cased(p.text.word()))), w.map((one) => el("div.row", { style: "align-items:flex-start" }, el("div.faint", { style: "flex:0 0 26%" }, p.text.word()), el("div.main", { style: "flex:1" }, one))), end),
};
