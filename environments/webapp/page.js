/* Additions for the page of a web application, on top of those of every page (`../chromium/in_page.js`): it detects
   when the page is idle, and keeps the page on its site. Runs before all scripts of every document. */
(() => {
  "use strict";
  const page = window.__page;
  Object.defineProperty(window, "world", { value: window });
  page.most = 400;
  page.containers = "body, html, #root, #app, #__next";
  page.hidden = "head, svg *";
  page.live = "svg:not(button *, a *, [role=button] *, label *)";

  /* Pages that show the state itself are not part of the task. */
  page.style(`a:is([href="/go"], [href^="/go?"], [href="#/go"], [href^="#/go?"]) { display: none !important; }`);

  /* Identifiers that are the same for every load. */
  const byte = () => Math.floor(Math.random() * 256);
  crypto.getRandomValues = (array) => {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    for (let at = 0; at < bytes.length; at++) bytes[at] = byte();
    return array;
  };
  crypto.randomUUID = () => {
    const hex = Array.from({ length: 16 }, () => byte().toString(16).padStart(2, "0")).join("");
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20)}`;
  };

  /* Requests whose response is not complete yet. */
  let asked = 0;
  const come = () => { asked--; };
  const fetching = window.fetch.bind(window);
  window.fetch = (...args) => {
    asked++;
    const answer = fetching(...args);
    answer.then((found) => found.clone().arrayBuffer()).then(come, come);
    return answer;
  };
  const send = XMLHttpRequest.prototype.send;
  XMLHttpRequest.prototype.send = function (...args) {
    asked++;
    this.addEventListener("loadend", come, { once: true });
    return send.apply(this, args);
  };

  /* Any change of the document. */
  let changes = 0;
  new MutationObserver(() => { changes++; }).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });

  /* Advance the page's time in slices, so that a response to one timer may set the next. Between two slices, wait until
     no request is open and nothing changes for some real turns of the browser. The wait for a response is long enough
     for a loaded machine. A request that a server holds open even longer is waited for only once. */
  const SLICE_MS = 250, CALM = 3, MOST_CHANGING = 600, MOST_WAITING = 2400;
  let waited = 0, held = 0, leaving = false;
  /* A navigation to another document has begun, which ends this one when the response is there. */
  navigation.addEventListener("navigate", (event) => { leaving ||= !event.destination.sameDocument && event.downloadRequest === null; });
  const due = () => {
    held = Math.min(held, asked);
    return asked > held || leaving || document.readyState !== "complete";
  };
  const rest = async () => {
    for (let calm = 0, changing = 0; calm < CALM && changing < MOST_CHANGING;) {
      const before = changes;
      await page.turn();
      if (due() && waited++ < MOST_WAITING) calm = 0;
      else {
        held = asked;
        changing++;
        calm = changes === before ? calm + 1 : 0;
      }
    }
  };
  page.settle = async (ms) => {
    waited = 0;
    await rest();
    for (let left = ms; left > 0; left -= SLICE_MS) {
      for (const picture of document.images) picture.loading = "eager";
      await page.advance(Math.min(left, SLICE_MS));
      await rest();
    }
    return true;
  };

  /* Links and forms to another site do nothing. A page of this site opens here, because a new tab would not be visible.
     The page's own handlers run first. */
  const elsewhere = (address) => URL.parse(address, document.baseURI)?.origin !== location.origin;
  addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href], area[href]");
    if (!link) return;
    if (!link.href.startsWith("javascript:") && elsewhere(link.href)) event.preventDefault();
    link.removeAttribute("target");
  });
  addEventListener("auxclick", (event) => { if (event.button === 1) event.target.closest?.("a[href], area[href]")?.click(); });
  addEventListener("submit", (event) => { if (elsewhere(event.target.action)) event.preventDefault(); });
})();
