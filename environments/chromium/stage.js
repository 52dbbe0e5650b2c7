/* A page that stays, in which every document is opened in a frame of its own: a new document and a new JavaScript
   world, but no navigation, so the browser's own process, the network stack and new threads have no part in it, and V8
   still knows the scripts it compiled for the last one. Called with the script that comes before anything of a document. */
((script) => {
  "use strict";
  document.documentElement.innerHTML = "<head></head><body style='margin:0;overflow:hidden'></body>";

  const read = (url) => new Promise((resolve, reject) => {
    const asked = new XMLHttpRequest();
    asked.open("GET", url);
    asked.overrideMimeType("text/plain; charset=utf-8");
    asked.onload = () => resolve(asked.response);
    asked.onerror = () => reject(new Error(`cannot read ${url}`));
    asked.send();
  });
  const kept = new Map();
  const once = (key, make) => {
    if (!kept.has(key)) kept.set(key, make());
    return kept.get(key);
  };

  /* A document in pieces, markup and the text of a script in turn; style sheets are written where they were linked.
     What a comment or a script holds is no tag. */
  const TAGS = /<!--[^]*?-->|<script\b[^>]*>[^]*?<\/script\s*>|<link\b[^>]*>/gi;
  const PLAIN = ["", "text/javascript", "application/javascript"];
  const elementOf = (tag) => new DOMParser().parseFromString(tag, "text/html").head.firstElementChild;
  const textAt = (path) => {
    const url = new URL(path, document.baseURI).href;
    return once(url, () => read(url));
  };
  const styleOf = async (path) => {
    const url = new URL(path, document.baseURI).href, text = await textAt(path);
    const placed = text.replace(/url\((["']?)(?!data:)([^"')]+)\1\)/g, (_, quote, path) => `url("${new URL(path, url).href}")`);
    return `<style>${placed}</style>`;
  };
  const documentAt = async (url) => {
    const text = await read(url), pieces = [""], deferred = [];
    let from = 0;
    const add = (markup) => { pieces[pieces.length - 1] += markup; };
    for (const found of text.matchAll(TAGS)) {
      const [tag] = found, element = tag.startsWith("<!--") ? null : elementOf(tag);
      const source = element?.getAttribute("src"), linked = element?.relList?.contains("stylesheet") && element.getAttribute("href");
      /* A module is fetched by the browser itself, which runs it when the document is complete. */
      if (linked) add(text.slice(from, found.index) + await styleOf(linked));
      else if (source && PLAIN.includes(element.type.trim().toLowerCase()) && !element.noModule) {
        add(text.slice(from, found.index));
        if (element.defer && !element.hasAttribute("async")) deferred.push(await textAt(source));
        else pieces.push(await textAt(source), "");
      } else continue;
      from = found.index + tag.length;
    }
    add(text.slice(from));
    for (const script of deferred) pieces.push(script, "");
    return { pieces, notes: {} };
  };

  let frame = null;
  const place = () => {
    if (frame) frame.remove();
    frame = document.createElement("iframe");
    /* Refused at once, so the frame keeps its first empty document; without an address it would load a second one. */
    frame.src = "chrome://none/";
    frame.style.cssText = "position:fixed;left:0;top:0;width:100%;height:100%;border:0";
    document.body.append(frame);
  };
  /* What a document could store for the next one; there is none of it. */
  const STORES = ["localStorage", "sessionStorage", "indexedDB", "caches"];
  const write = (pieces, before) => {
    const inner = frame.contentDocument;
    inner.open();
    for (const name of STORES) Object.defineProperty(frame.contentWindow, name, { value: undefined });
    frame.contentWindow.eval(script);
    before(frame.contentWindow);
    inner.write(pieces[0]);
    for (let at = 1; at < pieces.length; at += 2) {
      /* An empty script runs when it gets its text: where it stands, and without the parser reading through it. */
      inner.write("<script></" + "script>");
      inner.scripts[inner.scripts.length - 1].text = pieces[at];
      inner.write(pieces[at + 1]);
    }
    inner.close();
    frame.contentWindow.focus();
  };

  /* The focus that a tab key has led out of the document comes back with the next key; a whole page would hear that key
     without having the focus, so it would draw what is selected in another colour. */
  addEventListener("keydown", () => frame && frame.contentWindow.focus(), true);

  /* Opens the document at `url` in place of the last one, after `before` was done in its window: that window, and an
     object for notes that are kept for the next time the same document is opened. */
  window.stage = async (url, before) => {
    const { pieces, notes } = await once(`document ${url}`, () => documentAt(url));
    place();
    write(pieces, before);
    return [frame.contentWindow, notes];
  };
  /* The window of the open document. */
  Object.defineProperty(window, "world", { get: () => frame.contentWindow });
})
