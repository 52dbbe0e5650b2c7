/* The view of the workspace: it renders the given state and records the user's actions. Tasks and policies wrote the
   state, so it is only ever set as text. Everything is under `__workspace`. */
(() => {
  "use strict";
  const space = {};
  Object.defineProperty(window, "__workspace", { value: space });
  const $ = (id) => document.getElementById(id);
  const make = (tag, about, ...inside) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(about)) {
      if (name === "does") node.dataset.does = JSON.stringify(value);
      else node[name] = value;
    }
    node.append(...inside);
    return node;
  };

  let done = [];
  const enters = { command: "run", address: "address" };
  document.addEventListener("click", (event) => {
    const node = event.target.closest("[data-does]");
    if (node) done.push(JSON.parse(node.dataset.does));
    if (event.target.closest("#save")) done.push(["save", $("path").value, $("text").value]);
    if (event.target.closest("a")) event.preventDefault();
  });
  document.addEventListener("auxclick", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    const verb = enters[event.target.id];
    if (event.key !== "Enter" || !verb) return;
    if (event.target.value.trim()) done.push([verb, event.target.value]);
    if (verb === "run") event.target.value = "";
  });
  window.addEventListener("dragstart", (event) => event.preventDefault(), true);

  /* Only changed parts are drawn again, so unfinished input in other parts stays. */
  const drawn = {};
  const draw = (part, given, nodes) => {
    const text = JSON.stringify(given);
    if (drawn[part] === text) return;
    drawn[part] = text;
    $(part).replaceChildren(...nodes());
  };
  const size = (bytes) => (bytes < 10000 ? `${bytes}` : `${Math.round(bytes / 1024)}K`);
  const fileRow = (row) => make("div", {},
    make("button", { className: row.selected ? "name on" : "name", title: row.name, does: [row.folder ? "folder" : "open", row.path] }, row.folder ? `${row.name}/` : row.name),
    ...(row.folder ? [] : [make("small", {}, size(row.size))]),
    make("button", { title: `Delete ${row.name}`, does: ["delete", row.path] }, "\u00d7"));
  const block = ([kind, ...rest]) => {
    if (kind === "link") return make("p", { className: "link" }, make("a", { href: "#", does: ["go", rest[1]] }, rest[0]));
    if (kind === "download") return make("p", {}, make("button", { title: `Download ${rest[0]}`, does: ["download", rest[0]] }, `Download ${rest[0]}`));
    if (kind === "upload") return make("p", {},
      `${rest[0]}: `, make("button", { title: `Upload ${rest[1]} to ${rest[0]}`, does: ["upload", rest[0]] }, rest[1] ? `Upload ${rest[1]}` : "Upload (select a file)"),
      rest[2] ? ` received ${rest[2]}` : "");
    return make("p", {}, rest[0]);
  };
  /* Consecutive rows form one table. */
  const blocks = (given) => {
    const nodes = [];
    for (const one of given) {
      if (one[0] !== "row") nodes.push(block(one));
      else {
        if (nodes.at(-1)?.tagName !== "TABLE") nodes.push(make("table", {}));
        nodes.at(-1).append(make("tr", {}, ...one.slice(1).map((cell) => make("td", {}, cell))));
      }
    }
    return nodes;
  };

  space.ready = () => {
    $("command").focus();
    return true;
  };
  space.show = (view) => {
    draw("files", [view.folder, view.above, view.rows], () => [
      make("h2", {}, view.folder),
      ...(view.above === null ? [] : [make("div", {}, make("button", { className: "name", title: "..", does: ["folder", view.above] }, "../"))]),
      ...view.rows.map(fileRow)]);
    draw("tabs", view.tab, () => ["browser", "editor"].map((name) =>
      make("button", { className: view.tab === name ? "on" : "", title: name, does: ["tab", name] }, name === "browser" ? "Browser" : "Editor")));
    $("browser").hidden = view.tab !== "browser";
    $("editor").hidden = view.tab !== "editor";
    draw("browser", [view.address, view.title, view.blocks], () => [
      make("div", { id: "bar" }, make("button", { title: "Back", does: ["back"] }, "Back"), make("input", { id: "address", title: "Address", value: view.address, autocomplete: "off" })),
      make("h1", {}, view.title), ...blocks(view.blocks)]);
    if (drawn.editor !== view.editor.version) {
      drawn.editor = view.editor.version;
      $("path").value = view.editor.path;
      $("text").value = view.editor.text;
      $("text").scrollTop = 0;
    }
    if ($("output").textContent !== view.terminal) $("output").textContent = view.terminal;
    $("output").scrollTop = $("output").scrollHeight;
    $("prompt").textContent = view.prompt;
    $("status").textContent = view.status;
    done = [];
    return true;
  };
  /* Return the actions since the last call. */
  space.events = () => {
    const heard = done;
    done = [];
    return heard;
  };

  /* The visible elements: [name, kind, left, top, right, bottom, interactive, value]. */
  const KINDS = { A: "link", BUTTON: "button", INPUT: "text field", TEXTAREA: "textarea" };
  space.elements = () => [...document.querySelectorAll("a, button, input, textarea, p, td, h1, h2, #status, #prompt")].flatMap((node) => {
    if (!node.checkVisibility()) return [];
    const kind = KINDS[node.tagName] ?? "text";
    if (kind === "text" && (node.querySelector("a, button") || !node.textContent)) return [];
    const within = node.closest("nav, section, aside, footer, header").getBoundingClientRect(), { left, top, right, bottom } = node.getBoundingClientRect();
    const box = [Math.max(within.left, left) / innerWidth, Math.max(within.top, top) / innerHeight,
      Math.min(within.right, right) / innerWidth, Math.min(within.bottom, bottom) / innerHeight];
    const hit = document.elementFromPoint((box[0] + box[2]) / 2 * innerWidth, (box[1] + box[3]) / 2 * innerHeight);
    if (box[2] <= box[0] || box[3] <= box[1] || hit !== node) return [];
    return [[node.title || node.textContent.slice(0, 80), kind, ...box, kind !== "text", (node.value || "").slice(0, 200)]];
  });
})();
