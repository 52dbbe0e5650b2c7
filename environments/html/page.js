/* What a page of the user's has of ours, beside what every page has (`../chromium/in_page.js`). The page itself brings
   `window.task`: `start(seed)` sets it up and returns the instruction; `reward()` is a number once the task is over,
   and null or undefined before. */
(() => {
  "use strict";
  const page = window.__page, html = {};
  Object.defineProperty(window, "__html", { value: html });

  /* What the page draws as it loads depends on the seed too, and is not what `start` draws from the same seed. */
  html.load = (seed) => page.seed(~seed);

  /* What went wrong first, for whoever finds the page without a task. */
  let first = null;
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

  const verdict = () => {
    let reward;
    try { reward = window.task.reward(); } catch (error) { throw new Error(`window.task.reward() threw ${error}`); }
    return [reward != null, reward ?? 0];
  };

  /* The clock stands still until somebody acts. Where `start` waits for a timer, it is moved to that timer; what it
     waits for in the browser itself, such as a picture, takes none of the page's time. */
  const MOST_TURNS = 1000;
  const started = async (seed) => {
    let over = false;
    const starting = (async () => window.task.start(seed))().finally(() => { over = true; });
    starting.catch(() => null);
    for (let turns = 0; turns < MOST_TURNS; turns++) {
      await page.turn();
      if (over) break;
      await page.advance(page.nextTimer() ?? 0);
    }
    if (!over) throw new Error("window.task.start(seed) does not come to an end: what it waits for never happens");
    try { return await starting; } catch (error) { throw new Error(`window.task.start(${seed}) threw ${error}`); }
  };
  html.start = async (seed, notes) => {
    await page.ready(notes);
    for (const name of ["start", "reward"]) if (typeof window.task?.[name] !== "function") {
      throw new Error(`the page has no window.task.${name}${first === null ? "" : `; its first error: ${first}`}`);
    }
    page.seed(seed);
    const instruction = await started(seed);
    if (typeof instruction !== "string" || !instruction) throw new Error("window.task.start(seed) returns no instruction");
    await page.advance(0);
    return [instruction, verdict()];
  };
  html.advance = page.advance;
  html.verdict = verdict;
})();
