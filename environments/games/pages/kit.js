"use strict";
/* Shared by the built-in games: random numbers, a bar, a board, a canvas, keys, and actions for `game.hint`. */
const kit = {
  SIDE: 224,
  /* A whole number from 0 to below n. */
  below: (n) => Math.floor(Math.random() * n),
  picked: (list) => list[kit.below(list.length)],
  shuffled(list) {
    const all = [...list];
    for (let at = all.length - 1; at > 0; at--) {
      const other = kit.below(at + 1);
      [all[at], all[other]] = [all[other], all[at]];
    }
    return all;
  },
  added(tag, parent, className = "") {
    const node = document.createElement(tag);
    node.className = className;
    parent.append(node);
    return node;
  },
  status(left, right = "") {
    kit.bar ??= Object.assign(kit.added("p", document.body), { id: "bar" });
    kit.bar.replaceChildren();
    for (const text of [left, right]) kit.added("span", kit.bar).textContent = text;
  },
  board() {
    return Object.assign(kit.added("div", document.body), { id: "board" });
  },
  /* Rows of cells that fill the board; a click calls `act(row, column)`. */
  cells(rows, columns, act = null) {
    const board = kit.board(), size = Math.floor(kit.SIDE / Math.max(rows, columns));
    const [left, top] = [(kit.SIDE - size * columns) / 2, (kit.SIDE - size * rows) / 2];
    return Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) => {
      const cell = kit.added("div", board, "cell");
      cell.style.cssText = `left:${left + size * column}px;top:${top + size * row}px;width:${size}px;height:${size}px;font-size:${Math.floor(size * 0.45)}px`;
      if (act) cell.addEventListener("click", () => act(row, column));
      return cell;
    }));
  },
  canvas() {
    const canvas = kit.added("canvas", kit.board());
    canvas.width = canvas.height = kit.SIDE;
    return canvas.getContext("2d");
  },
  /* Call `act(name)` for each of the keys, by their DOM names. */
  keys(names, act) {
    addEventListener("keydown", (event) => {
      if (!names.includes(event.key)) return;
      event.preventDefault();
      act(event.key);
    });
  },
  ARROWS: { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] },
  /* Return the steps of a shortest way from `from` to a state for which `there` is true, or null. `next` lists pairs
     [step, state]. States are compared by their JSON. */
  way(from, there, next, most = 200000) {
    const seen = new Map([[JSON.stringify(from), null]]), open = [from];
    for (let at = 0; at < open.length && at < most; at++) {
      const state = open[at];
      if (there(state)) {
        const steps = [];
        for (let back = seen.get(JSON.stringify(state)); back; back = seen.get(back[1])) steps.unshift(back[0]);
        return steps;
      }
      for (const [step, after] of next(state)) {
        const name = JSON.stringify(after);
        if (seen.has(name)) continue;
        seen.set(name, [step, JSON.stringify(state)]);
        open.push(after);
      }
    }
    return null;
  },
  /* Actions. */
  point(node, x = 0.5, y = 0.5) {
    const box = node.getBoundingClientRect();
    return [(box.left + x * box.width) / innerWidth, (box.top + y * box.height) / innerHeight];
  },
  click(node, x = 0.5, y = 0.5) {
    const [left, top] = kit.point(node, x, y);
    return { type: "click", x: left, y: top };
  },
  drag(from, to) {
    const [[x, y], [to_x, to_y]] = [kit.point(from), kit.point(to)];
    return { type: "drag", x, y, to_x, to_y };
  },
  key: (name) => ({ type: "hotkey", key: name === " " ? "space" : name.replace("Arrow", "").toLowerCase() }),
  wait: { type: "wait" },
};
