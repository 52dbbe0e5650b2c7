/* A page of the site: it renders the given state and records the user's actions. Everything is under `__site`. */
(() => {
  "use strict";
  const site = {};
  Object.defineProperty(window, "__site", { value: site });
  let done = [];
  const doOf = (node) => JSON.parse(node.dataset.do);

  document.addEventListener("click", (event) => {
    const node = event.target.closest("a, button");
    if (!node) return;
    event.preventDefault();
    done.push(doOf(node));
  });
  document.addEventListener("auxclick", (event) => event.preventDefault());
  document.addEventListener("input", (event) => done.push([...doOf(event.target), event.target.value]));
  window.addEventListener("dragstart", (event) => event.preventDefault(), true);

  site.show = (markup) => {
    document.body.innerHTML = markup;
    scrollTo(0, 0);
    done = [];
    return true;
  };
  /* Return the actions since the last call. */
  site.events = () => {
    const heard = done;
    done = [];
    return heard;
  };

  /* The visible elements: [name, kind, left, top, right, bottom, interactive, value]. */
  const KINDS = { A: "link", BUTTON: "button", INPUT: "text field", SPAN: "text", H1: "text" };
  site.elements = () => [...document.querySelectorAll("a, button, input, span, h1")].flatMap((node) => {
    const { left, top, right, bottom } = node.getBoundingClientRect();
    const box = [Math.max(0, left) / innerWidth, Math.max(0, top) / innerHeight,
      Math.min(innerWidth, right) / innerWidth, Math.min(innerHeight, bottom) / innerHeight];
    const x = (box[0] + box[2]) / 2 * innerWidth, y = (box[1] + box[3]) / 2 * innerHeight;
    if (box[2] <= box[0] || box[3] <= box[1] || document.elementFromPoint(x, y) !== node) return [];
    const kind = KINDS[node.tagName];
    return [[kind === "text field" ? node.title : node.textContent, kind, ...box, "do" in node.dataset, node.value || ""]];
  });
})();
