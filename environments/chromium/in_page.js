/* Runs before all scripts of a task's page. It replaces the page's clock and random numbers, so that the page depends
   only on the seed and the actions. It also lists the visible elements. Everything is under `__page`. */
(() => {
  "use strict";
  /* Selectors of pure containers, of parts outside the task, and of interactive elements that the page does not mark as
     such; kinds of elements by role; and the largest number of listed elements. */
  const page = { containers: "body, html", hidden: "head", live: ":not(*)", kinds: {}, most: 150 };
  Object.defineProperty(window, "__page", { value: page });

  /* A clock that only `advance` moves: Date, performance.now, timers and animation frames. */
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
  /* Return a number for JSON; NaN and infinities, which JSON lacks, as text. */
  page.number = (value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value);
  page.advance = async (ms) => {
    advance(ms);
    await drawable();
  };
  /* Return the page's milliseconds until the next timer is due, or null without a timer. */
  page.nextTimer = () => (timers.size ? Math.max(0, Math.min(...[...timers.values()].map((timer) => timer.due)) - now) : null);
  /* Wait for one real turn of the browser's event loop, after its queued events. */
  page.turn = () => new Promise((resolve) => realTimeout(resolve, 0));

  /* Random numbers that are the same for every load, until the page's seed is set. */
  let state = 0x9e3779b9;
  Math.random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };

  page.seed = (seed) => { state = seed | 0; };

  /* Elements with event listeners. */
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

  /* A dialog would block the page, because no action can close it. */
  window.alert = () => undefined;
  window.confirm = () => true;
  window.prompt = () => null;
  window.print = () => undefined;
  window.open = () => null;

  /* A native drag begins only on an element that is marked draggable, or if the page listens to drags. A drag of a
     link, an image or selected text would take the pointer from a page that follows it. */
  const handlesDrags = (node) => node.ondragstart || node.ondragover || node.ondrop;
  listen.call(window, "dragstart", (event) => {
    const draggable = event.composedPath().some((node) => node instanceof Element && node.getAttribute("draggable") === "true");
    const handled = listensToDrags || [window, document, ...document.querySelectorAll("*")].some(handlesDrags);
    if (!draggable && !handled) event.preventDefault();
  }, true);

  /* A middle click on a link would open a tab, which is not visible. */
  listen.call(window, "auxclick", (event) => {
    if (event.target.closest?.("a[href], area[href]")) event.preventDefault();
  });

  /* Keys do not open the native pickers of dates and times (nor, by the style below, does the pointer). Screenshots do
     not show a picker, actions cannot close it, and an open one stops the whole browser from drawing. */
  const PICKED = new Set(["date", "time", "datetime-local", "month", "week", "color"]);
  listen.call(window, "keydown", (event) => {
    const opens = event.key === " " || event.key === "F4" || (event.altKey && event.key === "ArrowDown");
    if (opens && PICKED.has(event.target.type)) event.preventDefault();
  }, true);

  /* A clipboard for this page alone, because all pages of a browser share its clipboard. */
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

  /* Remove everything that changes with time from screenshots. Lists open inside the page, so that screenshots show
     them. */
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

  /* Images in style sheets are fetched when an element first needs one, and a screenshot waits for them. Images that
     give an element its size are fetched before the first action. */
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
  /* `notes` are the findings of an earlier load of the same page. */
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
  const textAfter = (node) => {
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
  const ariaLabel = (node) => squeeze(node.getAttribute("aria-label"));
  const kindOfInput = (node) => {
    const kinds = { checkbox: "checkbox", radio: "radio", password: "password field", range: "slider" };
    return kinds[node.type] || (["button", "submit", "reset", "image"].includes(node.type) ? "button" : "text field");
  };
  const kindOf = (node) => {
    const tag = node.tagName.toUpperCase(), own = page.kinds[node.getAttribute("role")];
    if (own) return own;
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
    if (kind === "checkbox" || kind === "radio") return labelOf(node) || (node.tagName === "INPUT" ? textAfter(node) : squeeze(node.textContent) || ariaLabel(node));
    if (["text field", "password field", "textarea", "select"].includes(kind)) return labelOf(node) || textBefore(node) || node.placeholder || ariaLabel(node);
    if (node.tagName === "INPUT") return node.value;
    return squeeze(node.textContent).slice(0, 80) || node.title || node.alt || ariaLabel(node);
  };
  const valueOf = (node, kind) => {
    if (kind === "checkbox" || kind === "radio") return node.checked || node.getAttribute("aria-checked") === "true" ? "checked" : "";
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

  /* Each visible element with its node. */
  page.listed = () => {
    [width, height] = [innerWidth, innerHeight];
    const found = [];
    const add = (node, name, kind, box, live, value) =>
      found.push([[name, kind, box[0] / width, box[1] / height, box[2] / width, box[3] / height, live, value], node]);
    const keep = (node, box, live, kind) => {
      if (!box || found.length >= page.most || !onTop(node, box)) return;
      add(node, nameOf(node, kind), kind, box, live, valueOf(node, kind));
    };
    const keepText = (node, live) => {
      const text = ownText(node);
      if (!text) return;
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = boxOf(node, range.getBoundingClientRect());
      if (box && onTop(node, box)) add(node, text.slice(0, 80), "text", box, live, "");
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
    return found.filter(([outer], at) => !outer[6] || !found.some(([inner], later) => later > at && inner[6] && covers(outer, inner)));
  };
  page.elements = () => page.listed().map(([item]) => item);
})();
