/* Runs before a phone's own scripts. Time stands still until `advance`, so that no wait takes real time, and a screen
   depends only on the task, the seed and the actions. Everything is under `__clock`. */
((epoch) => {
  "use strict";
  const FRAME_MS = 16, IDLE_MS = 50, PICTURES_MS = 5000, MOST_TIMERS = 20000;
  const realTimeout = window.setTimeout.bind(window);
  const RealDate = Date, timers = new Map();
  let now = 0, nextId = 1;

  class FrozenDate extends RealDate {
    constructor(...parts) { parts.length ? super(...parts) : super(epoch + now); }
    static now() { return epoch + now; }
  }
  window.Date = new Proxy(FrozenDate, { apply: () => new FrozenDate().toString() });
  performance.now = () => now;
  const add = (call, delay, args, every) => {
    const wait = Math.max(Number(delay) || 0, every ? 1 : 0);
    timers.set(nextId, { id: nextId, due: now + wait, call, args, every: every && wait });
    return nextId++;
  };
  const remove = (id) => { timers.delete(Number(id)); };
  window.setTimeout = (call, delay, ...args) => add(call, delay, args, false);
  window.setInterval = (call, delay, ...args) => add(call, delay, args, true);
  window.requestAnimationFrame = (call) => add(() => call(now), FRAME_MS - (now % FRAME_MS), [], false);
  window.requestIdleCallback = (call) => add(() => call({ didTimeout: false, timeRemaining: () => IDLE_MS }), 1, [], false);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = window.cancelIdleCallback = remove;

  /* The same random numbers after every load. */
  let state = 0x9e3779b9;
  Math.random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };

  /* A smooth scroll would take real time. */
  for (const name of ["scroll", "scrollTo", "scrollBy", "scrollIntoView"]) for (const owner of [Element.prototype, window]) {
    const scroll = owner[name];
    if (scroll) owner[name] = function (...parts) {
      const [one] = parts;
      return scroll.apply(this, one && typeof one === "object" ? [{ ...one, behavior: "instant" }] : parts);
    };
  }
  const style = new CSSStyleSheet();
  style.replaceSync("* { scroll-behavior: auto !important; caret-color: transparent !important; }");
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, style];

  /* One turn of the browser's event loop, in which promises and messages are delivered. */
  const port = new MessageChannel(), waiting = [];
  port.port1.onmessage = () => waiting.shift()?.();
  const turn = () => new Promise((done) => { waiting.push(done); port.port2.postMessage(0); });
  const pause = (ms) => new Promise((done) => realTimeout(done, ms));

  const advance = async (ms) => {
    const end = now + ms;
    for (let count = 0; count < MOST_TIMERS; count++) {
      let first = null;
      for (const timer of timers.values()) if (timer.due <= end && (!first || timer.due < first.due)) first = timer;
      if (!first) break;
      now = Math.max(now, first.due);
      if (first.every) first.due = now + first.every; else timers.delete(first.id);
      try { typeof first.call === "function" ? first.call.apply(window, first.args) : (0, eval)(first.call); } catch (error) { console.error(error); }
      await turn();
      await turn();
    }
    now = end;
  };

  /* End the animations that end, and stop the endless ones at their beginning. Returns whether one ended. */
  const finish = () => {
    let ended = false;
    for (const one of document.getAnimations()) {
      if (one.effect?.getComputedTiming().endTime === Infinity) {
        if (one.playState !== "paused" || one.currentTime !== 0) { one.pause(); one.currentTime = 0; }
      } else if (one.playState !== "finished") {
        try { one.finish(); ended = true; } catch { one.cancel(); }
      }
    }
    return ended;
  };

  /* Changes of the page since the last call of `moves`. */
  let changes = 0;
  new MutationObserver(() => { changes++; }).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });

  window.__clock = {
    advance: async (ms) => { await turn(); await advance(ms); },
    /* Let time pass until `end`, or at most `ms`. */
    until: async (end, ms = end) => { await turn(); await advance(Math.max(0, Math.min(end - now, ms))); },
    /* Called after a frame: returns whether something still moves, and lets a few frames of time pass then. */
    moves: async () => {
      await turn();
      const [ended, changed] = [finish(), changes];
      changes = 0;
      if (!ended && !changed) return false;
      await advance(FRAME_MS * 4);
      return true;
    },
    /* Wait until the images of the page can be drawn. */
    pictures: () => Promise.race([
      Promise.all([...document.images].map((image) => image.decode().catch(() => null))), pause(PICTURES_MS),
    ]).then(() => null),
    /* Return the result of a promise that waits for timers. */
    during: async (promise) => {
      let over = false;
      const result = Promise.resolve(promise).finally(() => { over = true; });
      result.catch(() => null);
      for (let count = 0; !over && count < MOST_TIMERS; count++) {
        await turn();
        await turn();
        if (over) break;
        const next = Math.min(...[...timers.values()].map((timer) => timer.due));
        if (Number.isFinite(next)) await advance(Math.max(0, next - now)); else await pause(1);
      }
      return result;
    },
  };
})
