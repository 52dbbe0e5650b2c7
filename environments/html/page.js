/* What a page of the user's has of ours, beside what every page has (`../chromium/in_page.js`). The page itself brings
   `window.task`: `start(seed)` sets it up and returns the instruction; `reward()` is a number once the task is over,
   and null or undefined before. */
(() => {
  "use strict";
  const page = window.__page, html = {};
  Object.defineProperty(window, "__html", { value: html });

  /* A task is one document: a form that is sent and a link that is followed leave it open. The page's own handlers
     have run by then. */
  addEventListener("submit", (event) => event.preventDefault());
  addEventListener("click", (event) => event.target.closest?.("a[href]") && event.preventDefault());

  const verdict = () => {
    const reward = window.task.reward();
    return [reward != null, reward ?? 0];
  };
  html.start = async (seed, notes) => {
    await page.ready(notes);
    for (const name of ["start", "reward"]) {
      if (typeof window.task?.[name] !== "function") throw new Error(`the page has no window.task.${name}`);
    }
    page.seed(seed);
    const instruction = await window.task.start(seed);
    if (typeof instruction !== "string" || !instruction) throw new Error("window.task.start(seed) returns no instruction");
    await page.advance(0);
    return [instruction, verdict()];
  };
  html.advance = async (ms) => {
    await page.advance(ms);
    return verdict();
  };
})();
