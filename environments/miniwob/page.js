/* Additions for MiniWoB++ pages, on top of those of every page (`../chromium/in_page.js`). */
(() => {
  "use strict";
  const page = window.__page, wob = {};
  Object.defineProperty(window, "__wob", { value: wob });
  page.containers = "body, html, #wrap, #area";
  page.hidden = "head, #query";
  page.style(`
    html, body { overflow: hidden !important; }
    #sync-task-cover, #reward-display, #click-canvas { display: none !important; }`);

  /* Other rules replace these four (`browsergym.js`); the first is the page's time before the first screen. */
  wob.opensMs = 0;
  wob.prepare = () => {};
  wob.verdict = () => [WOB_DONE_GLOBAL === true, page.number(Number(WOB_RAW_REWARD_GLOBAL))];
  wob.instruction = () => {
    const said = core.getUtterance();
    return typeof said === "string" ? said : said.utterance;
  };
  wob.start = async (seed, notes) => {
    await page.ready(notes);
    wob.prepare();
    Math.seedrandom(seed);
    core.setDataMode("train");
    core.startEpisodeReal();
    await page.advance(wob.opensMs);
    return [WOB_TASK_READY, wob.instruction(), wob.verdict()];
  };
  wob.advance = async (ms) => {
    await page.advance(ms);
    return wob.verdict();
  };
})();
