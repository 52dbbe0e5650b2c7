/* The rules of BrowserGym's benchmark `miniwob`, on top of `page.js`: the instruction is no part of the screen, an episode
   has 1,000 s of the page's time, and its reward is 1 for any positive raw reward, else 0. */
(() => {
  "use strict";
  const page = window.__page, wob = window.__wob;
  page.style("html, body { overflow: visible !important; }");

  wob.opensMs = 500;
  const EPISODE_MS = 1000000;
  let address = "";
  const query = () => document.getElementById("query");
  /* Two pages show a part of the instruction as a picture. The name of the icon, or of the colour, stands for it. */
  const PICTURES = ".ui-icon, .cc";
  const hex = (colour) => "#" + colour.match(/\d+/g).map((part) => Number(part).toString(16).padStart(2, "0")).join("");
  const named = (node) => (node.matches(".cc") ? hex(node.style.backgroundColor) : `"${node.classList[1]}"`);
  const written = (node) => (node instanceof Element && node.matches(PICTURES) ? named(node) : node.textContent);
  const readPictures = () => [...query().childNodes].map(written).join(" ").replace(/\s+/g, " ").trim();
  wob.prepare = () => {
    address = location.href;
    core.EPISODE_MAX_TIME = EPISODE_MS;
    if (!query()) return;
    /* The text is taken out of the page, and is in its place only while the page's own functions may read or write it. */
    const readText = core.getUtterance;
    core.getUtterance = () => (query().querySelector(PICTURES) ? readPictures() : readText.call(core));
    let text = "";
    const hide = () => { [text, query().innerHTML] = [query().innerHTML, ""]; };
    for (const name of ["startEpisodeReal", "endEpisode", "getUtterance"]) {
      const inner = core[name];
      core[name] = (...given) => {
        query().innerHTML = text;
        try { return inner.apply(core, given); } finally { hide(); }
      };
    }
    hide();
  };
  /* A page at another address, such as after a click on a link to `#`, ends the episode without a reward. */
  wob.verdict = () => {
    const left = location.href !== address;
    return [left || WOB_DONE_GLOBAL === true, Number(!left && WOB_RAW_REWARD_GLOBAL > 0)];
  };
})();
