/* Runs before anything of a page that is a task by itself. It takes the page's time and chance in hand, so that what
   happens depends on the seed and the actions alone, and it can list the visible elements. Everything is under
   `__page`. */
(() => {
  "use strict";
  /* Selectors: what only holds others, what is no part of the task, and what reacts though it does not say so; and how
     many elements are listed. */
  const page = { containers: "body, html", hidden: "head", live: ":not(*)", most: 150 };
  Object.defineProperty(window, "__page", { value: page });

  /* A clock that only moves when it is told to: Date, performance.now, timers and animation frames. */
  const EPOCH = Date.UTC(2020, 0, 15, 12, 0, 0);
  const FRAME_MS = 16;
  let now = 0, nextId = 1;
  const timers = new Map();
  const realTimeout = window.setTimeout.bind(window);
  const RealDate = Date;
  class ManualDate extends RealDate {
    constructor(...parts) { parts.length ? super(...parts) : super(EPOCH + now); }
    static now() { return EPOCH + now; }
  }
  window.Date = new Proxy(ManualDate, { apply: () => new ManualDate().toString() });
  performance.now = () => now;
  const add = (call, delay, args, every) => {
    const id = nextId++;
    const wait = Math.max(Number(delay) || 0, every ? 1 : 0);
    timers.set(id, { id, due: now + wait, call: typeof call === "function" ? call : () => (0, eval)(call), args, every: every && wait });
    return id;
  };
  const remove = (id) => { timers.delete(Number(id)); };
  window.setTimeout = (call, delay, ...args) => add(call, delay, args, false);
  window.setInterval = (call, delay, ...args) => add(call, delay, args, true);
  window.requestAnimationFrame = (call) => add(() => call(now), FRAME_MS - (now % FRAME_MS), [], false);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = remove;
  const advance = (ms) => {
    const end = now + ms;
    for (let guard = 0; guard < 20000; guard++) {
      let first = null;
      for (const timer of timers.values()) if (timer.due <= end && (!first || timer.due < first.due)) first = timer;
      if (!first) break;
      now = Math.max(now, first.due);
      if (first.every) first.due = now + first.every; else timers.delete(first.id);
      try { first.call.apply(window, first.args); } catch (error) { console.error(error); }
    }
    now = end;
  };
  /* A number as JSON has it; NaN and infinities, which JSON has not, as texts. */
  page.number = (value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value);
  page.advance = async (ms) => {
    advance(ms);
    await drawable();
  };
  /* How long until the next timer is due, in the page's time; null where none is set. */
  page.nextTimer = () => (timers.size ? Math.max(0, Math.min(...[...timers.values()].map((timer) => timer.due)) - now) : null);
  /* The browser's own turn: the events that it has queued come first. */
  page.turn = () => new Promise((resolve) => realTimeout(resolve, 0));

  /* Chance that is the same for every load; the page's own seed comes on top of it. */
  let state = 0x9e3779b9;
  Math.random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };

  page.seed = (seed) => { state = seed | 0; };

  /* Which elements listen. */
  const POINTED = new Set(["click", "mousedown", "mouseup", "dblclick", "pointerdown", "mouseover", "mouseenter", "touchstart"]);
  const DRAGGED = new Set(["dragstart", "dragover", "drop"]);
  let listensToDrags = false;
  const listening = new WeakSet();
  const listen = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (kind, ...rest) {
    if (POINTED.has(kind) && this instanceof Element) listening.add(this);
    listensToDrags ||= DRAGGED.has(kind);
    return listen.call(this, kind, ...rest);
  };

  /* A dialog would wait for a hand that never comes. */
  window.alert = () => undefined;
  window.confirm = () => true;
  window.prompt = () => null;
  window.print = () => undefined;
  window.open = () => null;

  /* A native drag begins where the page means one: of what it made draggable, or where something listens to drags. One
     of a link, a picture or selected text would take the pointer away from a page that follows it. */
  const meansDrags = (node) => node.ondragstart || node.ondragover || node.ondrop;
  listen.call(window, "dragstart", (event) => {
    const draggable = event.composedPath().some((node) => node instanceof Element && node.getAttribute("draggable") === "true");
    const heard = listensToDrags || [window, document, ...document.querySelectorAll("*")].some(meansDrags);
    if (!draggable && !heard) event.preventDefault();
  }, true);

  /* The native pickers of dates and times, which nothing sees and nobody can close, stay shut for keys (and, by the
     style below, for the pointer): an open one keeps the whole browser from drawing. */
  const PICKED = new Set(["date", "time", "datetime-local", "month", "week", "color"]);
  listen.call(window, "keydown", (event) => {
    const opens = event.key === " " || event.key === "F4" || (event.altKey && event.key === "ArrowDown");
    if (opens && PICKED.has(event.target.type)) event.preventDefault();
  }, true);

  /* A clipboard of the page's own: the browser's is shared by all its pages. */
  let clipboard = "";
  const copied = () => {
    const field = document.activeElement;
    const held = field && typeof field.value === "string" && field.selectionStart != null;
    return held ? field.value.slice(field.selectionStart, field.selectionEnd) : String(getSelection());
  };
  for (const kind of ["copy", "cut"]) listen.call(document, kind, (event) => {
    clipboard = copied();
    event.preventDefault();
    if (kind === "cut") document.execCommand("delete");
  }, true);
  listen.call(document, "paste", (event) => {
    event.preventDefault();
    document.execCommand("insertText", false, clipboard);
  }, true);

  /* What a still picture must not depend on. Lists drop down inside the page, where a screenshot sees them. */
  const STYLE = `
    *, *::before, *::after { animation: none !important; transition: none !important; caret-animation: manual; }
    select:not([multiple]):not([size]), select::picker(select) { appearance: base-select; }
    select::picker(select) { font-size: 10px; }
    ::-webkit-calendar-picker-indicator { display: none !important; }`;
  page.style = (text) => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(text);
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  };
  page.style(STYLE);

  /* Pictures are fetched when an element first needs one; whoever looks must not be quicker than they are. Those that
     give an element its size are fetched before anything is done. */
  const findPictures = () => {
    const found = [];
    for (const styles of document.styleSheets) for (const rule of styles.cssRules) {
      const [, path] = (rule.selectorText && /url\("([^"]+)"\)/.exec(rule.cssText)) || [];
      if (!path) continue;
      const selector = rule.style.content.includes("url(") ? "*" : rule.selectorText.replace(/::?(before|after)|:(hover|active|focus)/g, "");
      found.push({ selector, url: new URL(path, styles.href || document.baseURI).href });
    }
    return found;
  };
  let pictures = [];
  const fetched = new Map();
  const drawable = () => {
    for (const { selector, url } of pictures) if (!fetched.has(url) && document.querySelector(selector)) {
      fetched.set(url, Object.assign(new Image(), { src: url }));
    }
    return Promise.all([...document.images, ...fetched.values()].map((image) => image.decode().catch(() => null)));
  };
  const loaded = new Promise((resolve) => listen.call(window, "load", () => realTimeout(resolve, 0)));
  /* `notes` are what an earlier load of the same page has found out about it. */
  page.ready = async (notes) => {
    await loaded;
    pictures = notes.pictures ??= findPictures();
  };

  /* The visible elements: [name, kind, left, top, right, bottom, interactive, value]. */
  let width = 0, height = 0;
  const SKIPPED = new Set(["SCRIPT", "STYLE", "BR", "HR", "HEAD", "OPTGROUP", "DEFS", "TITLE"]);
  const LIVE = "a, button, input, select, textarea, option, summary, [contenteditable], [onclick], [draggable=true], "
    + ".ui-slider-handle, .ui-draggable:not(.ui-dialog), .ui-sortable > *, .ui-selectee, .ui-resizable-se";
  const SHAPES = new Set(["circle", "ellipse", "line", "path", "polygon", "polyline", "rect", "image", "text"]);
  const squeeze = (text) => (text || "").replace(/\s+/g, " ").trim();
  const isContainer = (node) => node.matches(page.containers);

  const clipOf = (node) => {
    let [left, top, right, bottom] = [0, 0, width, height];
    for (let up = node.parentElement, inner = node; up && up !== document.body; inner = up, up = up.parentElement) {
      if (getComputedStyle(inner).position === "fixed") break;
      if (up.ownerSVGElement || getComputedStyle(up).overflow === "visible") continue;
      const box = up.getBoundingClientRect();
      left = Math.max(left, box.left); top = Math.max(top, box.top);
      right = Math.min(right, box.right); bottom = Math.min(bottom, box.bottom);
    }
    return [left, top, right, bottom];
  };
  const boxOf = (node, box) => {
    const clip = clipOf(node);
    const cut = [Math.max(box.left, clip[0]), Math.max(box.top, clip[1]), Math.min(box.right, clip[2]), Math.min(box.bottom, clip[3])];
    return cut[2] - cut[0] >= 1 && cut[3] - cut[1] >= 1 ? cut : null;
  };
  const onTop = (node, box) => {
    const hit = document.elementFromPoint((box[0] + box[2]) / 2, (box[1] + box[3]) / 2);
    return !!hit && (hit === node || node.contains(hit) || hit.contains(node) || (hit.control && hit.control === node));
  };
  const ownText = (node) => squeeze([...node.childNodes].filter((part) => part.nodeType === 3).map((part) => part.data).join(" "));
  const textBeside = (node) => {
    for (let part = node.nextSibling; part; part = part.nextSibling) if (squeeze(part.textContent)) return squeeze(part.textContent);
    return "";
  };
  const textBefore = (node) => {
    for (let part = node.previousSibling; part; part = part.previousSibling) {
      if (part instanceof Element && (part.matches(LIVE) || part.querySelector(LIVE))) return "";
      if (squeeze(part.textContent)) return squeeze(part.textContent);
    }
    const parent = node.parentElement;
    return parent && !isContainer(parent) && parent.querySelectorAll("input, textarea, select").length === 1 ? textBefore(parent) : "";
  };
  const labelOf = (node) => squeeze([...(node.labels || [])].map((label) => label.textContent).join(" "));
  const spoken = (node) => squeeze(node.getAttribute("aria-label"));
  const kindOfInput = (node) => {
    const kinds = { checkbox: "checkbox", radio: "radio", password: "password field", range: "slider" };
    return kinds[node.type] || (["button", "submit", "reset", "image"].includes(node.type) ? "button" : "text field");
  };
  const kindOf = (node) => {
    const tag = node.tagName.toUpperCase();
    if (tag === "INPUT") return kindOfInput(node);
    if (tag === "TEXTAREA" || tag === "SELECT" || tag === "OPTION" || tag === "BUTTON") return tag.toLowerCase();
    if (node.closest(".ui-tabs-nav, [role=tab]")) return "tab";
    if (tag === "A") return "link";
    if (node.classList.contains("ui-slider-handle") || node.classList.contains("ui-slider")) return "slider";
    if (node.isContentEditable) return "textarea";
    if (node.ownerSVGElement && tag !== "TEXT" || tag === "CANVAS" || tag === "SVG" || tag === "IMG") return "shape";
    return squeeze(node.textContent) ? "text" : "other";
  };
  const nameOf = (node, kind) => {
    if (kind === "checkbox" || kind === "radio") return labelOf(node) || textBeside(node);
    if (["text field", "password field", "textarea", "select"].includes(kind)) return labelOf(node) || textBefore(node) || node.placeholder || spoken(node);
    if (node.tagName === "INPUT") return node.value;
    return squeeze(node.textContent).slice(0, 80) || node.title || node.alt || spoken(node);
  };
  const valueOf = (node, kind) => {
    if (kind === "checkbox" || kind === "radio") return node.checked ? "checked" : "";
    if (kind === "select") return [...node.selectedOptions].map((option) => option.text).join(", ");
    if (kind === "option") return node.selected ? "checked" : "";
    if (kind.endsWith("field") || kind === "textarea" || kind === "slider") return node.value || "";
    return "";
  };
  const isLive = (node) => {
    if (node.matches(":disabled")) return false;
    if (node.matches(LIVE) || node.matches(page.live) || node.tabIndex >= 0 || listening.has(node) || node.onclick || node.onmousedown) return true;
    return SHAPES.has(node.tagName) || node.tagName === "CANVAS";
  };
  const area = (item) => (item[4] - item[2]) * (item[5] - item[3]);
  const covers = (outer, inner) => {
    const edge = 0.002;
    const within = inner[2] >= outer[2] - edge && inner[3] >= outer[3] - edge && inner[4] <= outer[4] + edge && inner[5] <= outer[5] + edge;
    return within && area(inner) >= 0.5 * area(outer);
  };
  const isPointed = (node) => getComputedStyle(node).cursor === "pointer" && getComputedStyle(node.parentElement).cursor !== "pointer";

  page.elements = () => {
    [width, height] = [innerWidth, innerHeight];
    const found = [];
    const keep = (node, box, live, kind) => {
      if (!box || found.length >= page.most || !onTop(node, box)) return;
      found.push([nameOf(node, kind), kind, box[0] / width, box[1] / height, box[2] / width, box[3] / height, live, valueOf(node, kind)]);
    };
    const keepText = (node, live) => {
      const text = ownText(node);
      if (!text) return;
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = boxOf(node, range.getBoundingClientRect());
      if (box && onTop(node, box)) found.push([text.slice(0, 80), "text", box[0] / width, box[1] / height, box[2] / width, box[3] / height, live, ""]);
    };
    const walk = (node) => {
      if (SKIPPED.has(node.tagName.toUpperCase()) || node.matches(page.hidden) || found.length >= page.most) return;
      const style = getComputedStyle(node);
      if (style.display === "none" || Number(style.opacity) === 0) return;
      const seen = style.visibility === "visible" && !isContainer(node);
      const live = seen && (isLive(node) || isPointed(node));
      const paired = node.tagName === "LABEL" && node.control;
      if (live && !paired) keep(node, boxOf(node, node.getBoundingClientRect()), true, kindOf(node));
      else if (seen && !paired) keepText(node, false);
      for (const child of node.children) walk(child);
    };
    walk(document.body);
    return found.filter((outer, at) => !outer[6] || !found.some((inner, later) => later > at && inner[6] && covers(outer, inner)));
  };
})();
