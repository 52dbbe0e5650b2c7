/* What a page that is a game has of ours, beside what every document of others has (`../chromium/document.js`). The page
   need know nothing of it: how it is started and read is told by expressions. */
(() => {
  "use strict";
  const page = window.__page;
  let reads = {};

  /* Games keep their best score; here it is forgotten with the page. */
  class Store {
    getItem(key) { return Object.hasOwn(this, key) ? this[key] : null; }
    setItem(key, value) { this[key] = String(value); }
    removeItem(key) { delete this[key]; }
    clear() { for (const key of Object.keys(this)) delete this[key]; }
    key(at) { return Object.keys(this)[at] ?? null; }
    get length() { return Object.keys(this).length; }
  }
  for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, { value: new Store() });

  /* An expression sees what the page's own scripts see, their `let` and `const` among it. */
  const value = (what, ...given) => {
    try { return (0, eval)(`(seed, level) => (${reads[what]})`)(...given); } catch (error) {
      const first = page.firstError();
      throw new Error(`${what}, ${reads[what]}, threw ${error}${first === null ? "" : `; the page's first error: ${first}`}`);
    }
  };
  page.verdict = () => [value("over") === true, page.number(value("score")), value("level") ?? null];
  page.hint = () => value("hint") ?? null;
  page.play = async (seed, level, given, notes) => {
    reads = given;
    await page.ready(notes);
    page.seed(seed);
    const said = await page.started(`start, ${reads.start},`, () => value("start", seed, level));
    await page.advance(0);
    return [typeof said === "string" ? said : "", page.verdict()];
  };
})();
