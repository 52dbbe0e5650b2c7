/* Additions for a game's page, on top of those of every third-party document (`../chromium/document.js`). The page
   needs no changes: expressions start it and read its score. */
(() => {
  "use strict";
  const page = window.__page;
  let reads = {};

  /* Games store their best score; here it lasts as long as the page. */
  class Store {
    getItem(key) { return Object.hasOwn(this, key) ? this[key] : null; }
    setItem(key, value) { this[key] = String(value); }
    removeItem(key) { delete this[key]; }
    clear() { for (const key of Object.keys(this)) delete this[key]; }
    key(at) { return Object.keys(this)[at] ?? null; }
    get length() { return Object.keys(this).length; }
  }
  for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, { value: new Store() });

  /* An expression has the scope of the page's own scripts, with their `let` and `const`. */
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
