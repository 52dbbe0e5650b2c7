/* Additions for a user's page, on top of those of every third-party document (`../chromium/document.js`). The page
   defines `window.task`: `start(seed)` sets the task up and returns the instruction; `reward()` returns a number or
   true once the task is over, and null, undefined or false before. */
(() => {
  "use strict";
  const page = window.__page;

  page.verdict = () => {
    let reward;
    try { reward = window.task.reward(); } catch (error) { throw new Error(`window.task.reward() threw ${error}`); }
    return reward == null || reward === false ? [false, 0] : [true, reward === true ? 1 : page.number(reward)];
  };

  page.start = async (seed, notes) => {
    await page.ready(notes);
    for (const name of ["start", "reward"]) if (typeof window.task?.[name] !== "function") {
      const first = page.firstError();
      throw new Error(`the page has no window.task.${name}${first === null ? "" : `; its first error: ${first}`}`);
    }
    page.seed(seed);
    const instruction = await page.started(`window.task.start(${seed})`, () => window.task.start(seed));
    if (typeof instruction !== "string" || !instruction) throw new Error("window.task.start(seed) returns no instruction");
    await page.advance(0);
    return [instruction, page.verdict()];
  };
})();
