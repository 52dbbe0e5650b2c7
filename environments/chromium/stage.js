/* A lasting page that opens every document in a new frame, with a new JavaScript world but without a navigation. So the
   browser process, the network stack and new threads are not involved, and V8 keeps the compiled scripts of the last
   document. Called with the script that runs before those of a document. */
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

  /* Split a document into markup and script texts, in turn; linked style sheets are inserted at their links. Text
     inside comments and scripts is not read as tags. */
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
      /* The browser itself fetches a module, and runs it when the document is complete. */
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
    /* This address is refused at once, so the frame keeps its first empty document. Without an address it would load a
       second one. */
    frame.src = "chrome://none/";
    frame.style.cssText = "position:fixed;left:0;top:0;width:100%;height:100%;border:0";
    document.body.append(frame);
  };
  /* Remove everything that a document could store for the next one. */
  const STORES = ["localStorage", "sessionStorage", "indexedDB", "caches"];
  const write = (pieces, before) => {
    const inner = frame.contentDocument;
    inner.open();
    for (const name of STORES) Object.defineProperty(frame.contentWindow, name, { value: undefined });
    frame.contentWindow.eval(script);
    before(frame.contentWindow);
    inner.write(pieces[0]);
    for (let at = 1; at < pieces.length; at += 2) {
      /* An empty script runs when its text is set: in place, and without the parser reading it. */
      inner.write("<script></" + "script>");
      inner.scripts[inner.scripts.length - 1].text = pieces[at];
      inner.write(pieces[at + 1]);
    }
    inner.close();
    frame.contentWindow.focus();
  };

  /* If a tab key moved the focus out of the document, return it at the next key. Otherwise the outer page would receive
     that key without having the focus, and would draw the selection in another colour. */
  addEventListener("keydown", () => frame && frame.contentWindow.focus(), true);

  /* Open the document at `url` instead of the last one. `before` is called with its window, before the document is
     written. Return the window and an object for notes, which is kept for the next time that the document is opened. */
  window.stage = async (url, before) => {
    const { pieces, notes } = await once(`document ${url}`, () => documentAt(url));
    place();
    write(pieces, before);
    return [frame.contentWindow, notes];
  };
  /* The window of the open document. */
  Object.defineProperty(window, "world", { get: () => frame.contentWindow });
})
