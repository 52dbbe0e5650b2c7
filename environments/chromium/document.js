/* Limits for third-party documents, in addition to those of every page (`in_page.js`): a document has no storage, opens
   no other document, and finishes its start before the first action. An environment's own script defines
   `page.verdict`. */
(() => {
  "use strict";
  const page = window.__page;

  /* Random numbers during loading also depend on the seed, but differ from those after the start. */
  page.load = (seed) => page.seed(~seed);

  /* The first error of the page, for the message about a page without a task. */
  let first = null;
  page.firstError = () => first;
  addEventListener("error", ({ target, error, message }) => {
    if (target === window) first ??= String(error ?? message);
    else if (target.tagName === "SCRIPT") first ??= `cannot load ${target.src || "what a module imports"}`;
  }, true);
  addEventListener("unhandledrejection", ({ reason }) => { first ??= String(reason); });

  for (const name of ["localStorage", "sessionStorage", "indexedDB", "caches"]) Object.defineProperty(window, name, {
    get() { throw new Error(`a page has no storage, so no ${name}`); },
  });

  /* A task is one document: a submitted form or a clicked link does not leave it. The page's own handlers run first. */
  const within = (link) => {
    const [there, hash] = (URL.parse(link.getAttribute("href"), document.baseURI)?.href ?? "").split("#");
    return there.startsWith("javascript:") || (hash !== undefined && there === document.URL.split("#")[0]);
  };
  const elsewhere = (event, link) =>
    !within(link) || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || !["", "_self"].includes(link.getAttribute("target") ?? "");
  addEventListener("submit", (event) => event.preventDefault());
  addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href], area[href]");
    if (link && elsewhere(event, link)) event.preventDefault();
  });

  /* During the start only timers move the clock: if `start` waits for a timer, the clock jumps to it. Waiting for the
     browser itself, such as for an image, takes none of the page's time. */
  const MOST_TURNS = 1000;
  /* Return the result of `start()`; `name` names it in errors. */
  page.started = async (name, start) => {
    let over = false;
    const starting = (async () => start())().finally(() => { over = true; });
    starting.catch(() => null);
    for (let turns = 0; turns < MOST_TURNS; turns++) {
      await page.turn();
      if (over) break;
      await page.advance(page.nextTimer() ?? 0);
    }
    if (!over) throw new Error(`${name} does not finish: it waits for something that never happens`);
    try { return await starting; } catch (error) { throw new Error(`${name} threw ${error}`); }
  };
})();
