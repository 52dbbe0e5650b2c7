/* Describes a page's screen: elements with their states, lines of text with a place for each letter, and the
   solution's next action. Coordinates of actions and elements are shares of the screen, those of text are pixels. */
(() => {
  "use strict";
  const page = window.__page;
  Object.assign(page, { hidden: "head, .icon, select > button", containers: "body, html, .stack",
    kinds: { switch: "checkbox", radio: "radio", option: "option", menuitem: "option", treeitem: "option" } });
  const tenth = (value) => Math.round(value * 10) / 10;
  const share = (value, whole) => Math.round(Math.min(1, Math.max(0, value / whole)) * 1e4) / 1e4;

  const flag = (node, name) => (node.hasAttribute(name) ? node.getAttribute(name) === "true" : undefined);
  const stateOf = (node) => {
    const found = {
      checked: ["checkbox", "radio"].includes(node.type) ? node.checked : flag(node, "aria-checked"),
      selected: node.tagName === "OPTION" ? node.selected : flag(node, "aria-selected") ?? flag(node, "aria-pressed"),
      expanded: node.tagName === "SELECT" ? node.matches(":open") : flag(node, "aria-expanded"),
      disabled: node.matches(":disabled") || undefined,
      focused: node === document.activeElement || undefined,
      hovered: (node.matches(":hover") && node !== document.body) || undefined,
    };
    return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
  };
  const statesOf = (listed) => {
    const found = {}, whole = document.scrollingElement;
    listed.forEach(([item, node], at) => {
      const state = item[6] || node.matches(":disabled") ? stateOf(node) : {};
      if (Object.keys(state).length) found[at] = state;
    });
    const room = whole.scrollHeight - innerHeight;
    if (room > 0) found[-1] = { scroll: share(whole.scrollTop, room) };
    return found;
  };

  /* The part of the screen where a node's content is not cut off. */
  const viewOf = (node, own = false) => {
    let [left, top, right, bottom] = [0, 0, innerWidth, innerHeight];
    for (let up = own ? node : node.parentElement; up && up !== document.body; up = up.parentElement) {
      const style = getComputedStyle(up);
      if (style.overflowX !== "visible") {
        const box = up.getBoundingClientRect();
        [left, top, right, bottom] = [Math.max(left, box.left), Math.max(top, box.top), Math.min(right, box.right), Math.min(bottom, box.bottom)];
      }
      if (style.position === "fixed" || up.matches("select, :popover-open")) break;
    }
    return [left, top, right, bottom];
  };
  const isOver = (node, x, y) => {
    const hit = document.elementFromPoint(x, y);
    return !!hit && (hit === node || node.contains(hit) || hit.contains(node));
  };
  /* A line from its letters, each [letter, left, top, right, bottom]; only the letters that can be seen. */
  const lineOf = (node, letters, view, px) => {
    const middle = (one) => [(one[1] + one[3]) / 2, (one[2] + one[4]) / 2];
    const inView = (one) => {
      const [x, y] = middle(one);
      return x >= view[0] && x < view[2] && y >= view[1] && y < view[3] && Math.min(one[4], view[3]) - Math.max(one[2], view[1]) > 0.7 * (one[4] - one[2]);
    };
    let kept = letters.filter(inView);
    const seen = (one) => isOver(node, ...middle(one));
    if (kept.length && !(seen(kept[0]) && seen(kept.at(-1)) && seen(kept[kept.length >> 1]))) kept = kept.filter(seen);
    while (kept.length && !kept[0][0].trim()) kept.shift();
    while (kept.length && !kept.at(-1)[0].trim()) kept.pop();
    if (!kept.length) return null;
    const edge = (side, pick) => tenth(pick(...kept.map((one) => one[side])));
    return [kept.map((one) => one[0]).join(""), [edge(1, Math.min), edge(2, Math.min), edge(3, Math.max), edge(4, Math.max)], px, kept.map((one) => tenth(middle(one)[0]))];
  };
  /* The letters of a text node by line. */
  const rowsOf = (text, by = [0, 0]) => {
    const range = document.createRange(), rows = [];
    let last = null;
    for (let at = 0; at < text.length; at++) {
      range.setStart(text, at);
      range.setEnd(text, at + 1);
      const box = range.getBoundingClientRect();
      if (!box.width) continue;
      if (last === null || Math.abs(box.top - last) > 2) rows.push([]);
      last = box.top;
      rows.at(-1).push([/\s/.test(text.data[at]) ? " " : text.data[at], box.left + by[0], box.top + by[1], box.right + by[0], box.bottom + by[1]]);
    }
    return rows;
  };
  /* Text in a field has no boxes of its own: use those of the same text in the same font, outside of the page. */
  const rowsOfField = (field) => {
    const value = field.value || field.placeholder;
    if (!value || ["checkbox", "radio", "range"].includes(field.type)) return [];
    const style = getComputedStyle(field), box = field.getBoundingClientRect(), many = field.tagName === "TEXTAREA";
    const mirror = document.createElement("div");
    const left = parseFloat(style.borderLeftWidth) + parseFloat(style.paddingLeft), top = parseFloat(style.borderTopWidth) + parseFloat(style.paddingTop);
    mirror.style.cssText = `position:fixed;left:0;top:0;visibility:hidden;white-space:${many ? "pre-wrap" : "pre"};overflow-wrap:break-word`
      + (many ? `;width:${field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)}px` : "");
    for (const name of ["fontFamily", "fontSize", "fontWeight", "fontStyle", "lineHeight", "letterSpacing", "webkitTextSecurity"]) mirror.style[name] = style[name];
    mirror.append(value);
    document.body.append(mirror);
    const down = many ? box.top + top : box.top + (box.height - mirror.getBoundingClientRect().height) / 2;
    const rows = rowsOf(mirror.firstChild, [box.left + left - field.scrollLeft, down - field.scrollTop]);
    mirror.remove();
    return field.type === "password" && field.value ? rows.map((row) => row.map(([, ...box]) => ["•", ...box])) : rows;
  };
  page.lines = () => {
    const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const keep = (node, rows, view) => {
      for (const row of rows) {
        const line = lineOf(node, row, view, parseFloat(getComputedStyle(node).fontSize));
        if (line) found.push(line);
      }
    };
    const range = document.createRange();
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
      const node = text.parentElement;
      if (!text.data.trim()) continue;
      range.selectNodeContents(text);
      const box = range.getBoundingClientRect();
      if (box.width && box.bottom > 0 && box.top < innerHeight) keep(node, rowsOf(text), viewOf(node, true));
    }
    for (const field of document.querySelectorAll("input, textarea")) if (field.getBoundingClientRect().width) keep(field, rowsOfField(field), viewOf(field, true));
    return found;
  };

  const actionOf = ({ do: type, at, to, direction, content, key }) => {
    const place = ([x, y], names) => ({ [names[0]]: share(x, innerWidth), [names[1]]: share(y, innerHeight) });
    return { type, ...(at && place(at, ["x", "y"])), ...(to && place(to, ["to_x", "to_y"])), ...(direction && { direction }),
      ...(type === "type" && { content }), ...(type === "hotkey" && { key }) };
  };
  /* The listed element that an input is at: the smallest one there that has to do with the node. */
  const targetOf = (listed, { node, at, do: type }) => {
    if (type === "scroll" || !node) return -1;
    const inside = ([, , left, top, right, bottom]) => !at || (at[0] >= left * innerWidth && at[0] <= right * innerWidth && at[1] >= top * innerHeight && at[1] <= bottom * innerHeight);
    const size = (item) => (item[4] - item[2]) * (item[5] - item[3]);
    const related = (one) => one === node || one.contains(node) || node.contains(one);
    const fit = listed.map(([item, one], index) => [item, one, index]).filter(([item, one]) => related(one) && one !== document.body && inside(item));
    fit.sort((a, b) => (b[1] === node) - (a[1] === node) || size(a[0]) - size(b[0]));
    return fit.length ? fit[0][2] : -1;
  };

  page.about = () => ({ theme: task.theme, font: task.font, px: task.px, widgets: task.widgets.map((one) => one.kind),
    asked: task.goals.map(({ widget }) => widget.kind) });
  page.scan = () => {
    const listed = page.listed(), next = page.verdict()[0] ? null : task.next();
    return { elements: listed.map(([item]) => item), states: statesOf(listed), lines: page.lines(), change: task.change(),
      action: next && actionOf(next), target: next ? targetOf(listed, next) : -1 };
  };
})();
