/* What a document that somebody else wrote is kept to, beside what every page has (`in_page.js`): it has no storage, it is
   the only one, and its start takes none of the time that actions move. An environment's own script brings
   `page.verdict`. */
(() => {
  "use strict";
  const page = window.__page;

  /* What the document draws as it loads depends on the seed too, and is not what is drawn from the same seed later. */
  page.load = (seed) => page.seed(~seed);

  /* What went wrong first, for whoever finds the page without a task. */
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

  /* A task is one document: a form that is sent and a link that is followed leave it open. The page's own handlers
     have run by then. */
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

  /* The clock stands still until somebody acts. Where `start` waits for a timer, it is moved to that timer; what it
     waits for in the browser itself, such as a picture, takes none of the page's time. */
  const MOST_TURNS = 1000;
  /* What `start()` comes to; `name` is what it is called in an error. */
  page.started = async (name, start) => {
    let over = false;
    const starting = (async () => start())().finally(() => { over = true; });
    starting.catch(() => null);
    for (let turns = 0; turns < MOST_TURNS; turns++) {
      await page.turn();
      if (over) break;
      await page.advance(page.nextTimer() ?? 0);
    }
    if (!over) throw new Error(`${name} does not come to an end: what it waits for never happens`);
    try { return await starting; } catch (error) { throw new Error(`${name} threw ${error}`); }
  };
})();
