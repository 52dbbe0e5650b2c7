/* How a page looks: themes, icons, and the helper that makes elements. */
"use strict";

/* [background, text, panel, line, accent, text on the accent, radius, border, space] */
const THEMES = {
  plain: ["#ffffff", "#111111", "#ffffff", "#8a8a8a", "#1a5fb4", "#ffffff", 0, 1, 3],
  paper: ["#f6f1e4", "#3b2f22", "#fffaf0", "#c8b89a", "#8a3b12", "#fff8ee", 3, 1, 4],
  dark: ["#1b1f24", "#d8dee6", "#262c33", "#4a535e", "#4f9cf0", "#0b1015", 4, 1, 4],
  contrast: ["#000000", "#ffffff", "#000000", "#ffffff", "#ffe600", "#000000", 0, 2, 3],
  soft: ["#eef1f6", "#2a3342", "#ffffff", "#d3dae6", "#6b5bd2", "#ffffff", 9, 1, 6],
  bevel: ["#c3c7cb", "#0a0a0a", "#d4d7da", "#6d7278", "#0a246a", "#ffffff", 0, 2, 3],
  mint: ["#e6f5ee", "#12402c", "#f7fffb", "#8fc7ab", "#0c7a4b", "#ffffff", 6, 1, 4],
  rose: ["#fff4f6", "#4a1626", "#ffe5ea", "#e2a3b2", "#b3123f", "#ffffff", 12, 1, 5],
};

/* Lines on a square of 16. */
const ICONS = {
  plus: "M8 3V13M3 8H13", cross: "M4 4L12 12M12 4L4 12", tick: "M3 9L7 13L13 4", bars: "M3 4H13M3 8H13M3 12H13",
  left: "M10 3L5 8L10 13", right: "M6 3L11 8L6 13", up: "M3 10L8 5L13 10", down: "M3 6L8 11L13 6",
  lens: "M7 3A4 4 0 1 0 7 11A4 4 0 1 0 7 3M10 10L14 14", house: "M2 8L8 3L14 8M4 7V13H12V7", bin: "M3 5H13M6 5V3H10V5M5 5L6 14H10L11 5",
  play: "M5 3L13 8L5 13Z", pause: "M5 3V13M11 3V13", letter: "M2 4H14V12H2ZM2 4L8 9L14 4", pin: "M8 14L4 7A4 4 0 1 1 12 7Z",
  flag: "M4 14V3H12L10 6L12 9H4", lock: "M4 8H12V14H4ZM6 8V5A2 2 0 0 1 10 5V8", bolt: "M9 2L4 9H8L7 14L12 7H8Z",
  eye: "M2 8Q8 2 14 8Q8 14 2 8M8 7A1 1 0 1 0 8 9A1 1 0 1 0 8 7", clip: "M11 5L6 10A1 1 0 0 0 8 12L13 7A3 3 0 0 0 9 3L4 8",
};
const COLOURS = {
  crimson: "#dc143c", orange: "#ff8c00", gold: "#e6b800", olive: "#808000", green: "#1a8a3a", teal: "#008b8b",
  blue: "#1e5bd6", navy: "#0b1f66", purple: "#7d2fb0", pink: "#f58fb5", brown: "#7a4a21", grey: "#888888",
};

/* `el("div.note", { title: "x", click: handler }, ...children)`; functions are handlers of events. */
const el = (what, about = {}, ...inside) => {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  node.className = classes.join(" ") || tag;
  for (const [name, value] of Object.entries(about)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...inside.flat(Infinity).filter((one) => one != null));
  return node;
};
const icon = (name) => {
  const space = "http://www.w3.org/2000/svg", drawn = document.createElementNS(space, "svg");
  const line = document.createElementNS(space, "path");
  line.setAttribute("d", ICONS[name]);
  drawn.setAttribute("viewBox", "0 0 16 16");
  drawn.setAttribute("class", "icon");
  drawn.append(line);
  return drawn;
};
const dress = (theme, font, px) => {
  const [back, ink, panel, line, accent, onAccent, radius, border, space] = THEMES[theme];
  const given = { back, ink, panel, line, accent, "on-accent": onAccent, radius: `${radius}px`, border: `${border}px`, space: `${space}px`,
    font: `"${font}"`, px: `${px}px` };
  for (const [name, value] of Object.entries(given)) document.documentElement.style.setProperty(`--${name}`, value);
  document.documentElement.className = theme;
};
