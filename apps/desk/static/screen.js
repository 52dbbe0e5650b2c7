/* The screenshot with its marks, and the editor of an action that points at it. */
import { describe, make } from "/static/desk.js";

const SVG = "http://www.w3.org/2000/svg";
const shape = (tag, attributes) => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};

/** One screen. `show` draws a screenshot, `mark` the points of an action and its correction, `boxes` the elements.
   `ready` is true once the screenshot is visible; `came` is called with true when it has loaded, false if it failed. */
export class Screen {
  constructor(svg, came = () => {}) {
    Object.assign(this, { svg, came, ready: false });
    this.marks = svg.querySelector(".marks");
  }

  show(digest, iteration, width, height) {
    this.width = width;
    this.height = height;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    let image = this.svg.querySelector("image");
    if (!image) {
      this.svg.prepend((image = shape("image", { preserveAspectRatio: "none" })));
      image.addEventListener("load", () => { this.ready = true; this.came(true); });
      image.addEventListener("error", () => this.came(false));
    }
    image.setAttribute("width", width);
    image.setAttribute("height", height);
    const href = `/screenshot/${digest}?iteration=${iteration}`;
    if (image.getAttribute("href") === href) return;
    this.ready = false;
    image.setAttribute("href", href);
  }

  mark(action, corrected = null) {
    this.marks.replaceChildren();
    this.aimed(action, Math.max(this.width, this.height) / 32, "");
    this.aimed(corrected, Math.max(this.width, this.height) / 24, "right");
  }

  aimed(action, radius, name) {
    const points = [["x", "y"], ["to_x", "to_y"]].filter(([x]) => action && action[x] !== undefined && action[x] !== null);
    const at = points.map(([x, y]) => [action[x] * this.width, action[y] * this.height]);
    if (at.length > 1) {
      this.marks.append(shape("line", { class: name, x1: at[0][0], y1: at[0][1], x2: at[1][0], y2: at[1][1], "stroke-width": radius / 4 }));
    }
    for (const [cx, cy] of at) {
      this.marks.append(shape("circle", { class: "halo", cx, cy, r: radius, "stroke-width": radius / 2 }));
      this.marks.append(shape("circle", { class: `ring ${name}`, cx, cy, r: radius, "stroke-width": radius / 4 }));
    }
  }

  boxes(elements) {
    for (const [name, kind, [left, top, right, bottom]] of elements) {
      const box = shape("rect", {
        x: left * this.width, y: top * this.height,
        width: Math.max(0, right - left) * this.width, height: Math.max(0, bottom - top) * this.height,
      });
      box.append(shape("title", {}));
      box.firstChild.textContent = name ? `${kind}: ${name}` : kind;
      this.marks.append(box);
    }
  }

  /** Return the point of a click in fractions of the screen, or null if it is outside. */
  point(event) {
    const matrix = this.svg.getScreenCTM().inverse();
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
    const [x, y] = [at.x / this.width, at.y / this.height];
    return x < 0 || x > 1 || y < 0 || y > 1 ? null : [round(x), round(y)];
  }
}

const round = (value) => Math.round(value * 10000) / 10000;
const NUMBERS = ["x", "y", "to_x", "to_y", "seconds"];
const CHOICES = { direction: ["up", "down", "left", "right"], button: ["left", "middle", "right"] };
const CHOSEN = { direction: "down", button: "left" };

/** The fields of an action in a form. Calls `changed` with the action after each change. */
export class ActionEditor {
  constructor(form, screen, kinds, changed) {
    Object.assign(this, { form, screen, kinds, changed, next: 0 });
    this.fields = form.querySelector(".fields");
    form.elements.type.append(...Object.keys(kinds).map((kind) => make("option", { value: kind }, kind.replaceAll("_", " "))));
    form.elements.type.addEventListener("change", () => this.set({ ...this.kept, type: form.elements.type.value }, true));
    form.addEventListener("input", () => this.changed(this.action));
    this.aim = (event) => {
      const at = screen.point(event);
      if (at) this.put(at);
    };
    this.move = (event) => {
      const step = (event.shiftKey ? 10 : 1) / Math.max(screen.width, screen.height);
      const by = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      const now = this.action ?? {};
      this.put([(now.x ?? 0.5) + by[0] * screen.height / screen.width || 0, (now.y ?? 0.5) + by[1]].map((one) => round(Math.min(1, Math.max(0, one)))), 0);
    };
  }

  /** Open the form with an action; from now on a click on the screenshot sets its point. */
  open(action, thought) {
    this.kept = {};
    this.set(action ?? { type: "click", x: 0.5, y: 0.5 });
    this.form.elements.thought.value = thought;
    this.form.hidden = false;
    this.screen.svg.classList.add("aim");
    this.screen.svg.addEventListener("click", this.aim);
    this.screen.svg.addEventListener("keydown", this.move);
  }

  close() {
    this.form.hidden = true;
    this.screen.svg.classList.remove("aim");
    this.screen.svg.removeEventListener("click", this.aim);
    this.screen.svg.removeEventListener("keydown", this.move);
  }

  set(action, report = false) {
    this.kept = { ...this.kept, ...action };
    this.next = 0;
    this.form.elements.type.value = action.type;
    this.fields.replaceChildren(...Object.keys(this.kinds[action.type]).map((name) => make("label", {}, name.replaceAll("_", " "), this.input(name))));
    if (report) this.changed(this.action);
  }

  input(name) {
    const value = this.kept[name];
    if (name in CHOICES) {
      const made = make("select", { name }, ...CHOICES[name].map((one) => make("option", {}, one)));
      made.value = value ?? CHOSEN[name];
      return made;
    }
    if (name === "command" || (name === "content" && this.form.elements.type.value === "write_file")) {
      return make("textarea", { name, class: "wide", rows: 4 }, value ?? "");
    }
    if (name === "arguments") {
      return make("textarea", { name, class: "wide", rows: 4 }, typeof value === "string" ? value : JSON.stringify(value ?? {}));
    }
    if (!NUMBERS.includes(name)) {
      const made = make("input", { name, class: "wide" });
      made.value = value ?? "";
      return made;
    }
    const required = this.kinds[this.form.elements.type.value][name];
    const limits = name === "seconds" ? { min: 0 } : { min: 0, max: 1 };
    const made = make("input", { name, type: "number", step: "any", ...limits, ...(required ? { required: "" } : {}) });
    made.value = value ?? (required ? 0.5 : "");
    return made;
  }

  /** Set a point of the action. For a drag, points alternate between its start and its end. */
  put([x, y], place = this.next) {
    const names = this.kinds[this.form.elements.type.value];
    if (!("x" in names)) this.set({ ...this.kept, type: "click" });
    const second = place === 1 && "to_x" in names;
    this.form.elements[second ? "to_x" : "x"].value = x;
    this.form.elements[second ? "to_y" : "y"].value = y;
    this.next = "to_x" in names && !second ? 1 : 0;
    this.changed(this.action);
  }

  get action() {
    const action = { type: this.form.elements.type.value };
    for (const [name, required] of Object.entries(this.kinds[action.type])) {
      const value = this.form.elements[name].value;
      delete this.kept[name];
      if (required || value !== "") action[name] = NUMBERS.includes(name) ? Number(value) : name === "arguments" ? json(value) : value;
    }
    Object.assign(this.kept, action);
    return action;
  }

  get thought() {
    return this.form.elements.thought.value;
  }
}

/** The value of a text in JSON, or the text itself, which the server refuses. */
function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export { describe };
