#!/usr/bin/env bash
# puppeteer-core 24.10.0 and playwright-core 1.53.0 (npm), 2026-11-27. Only their key tables are read; no browser starts.
# Guess: both libraries drive Chromium with one layout of a US keyboard, so a key name means the same key in both, and
#   "a" with Shift held writes "A".
# What happens: puppeteer's "+" and "-" are the keys of the number pad (codes NumpadAdd, 107), Playwright's those of the
#   main block (Equal, Minus). In both, "a" has no shifted form, so Shift and "a" write "a"; only the code KeyA, or "A"
#   itself, writes "A". "Numpad7" is Home in both, not 7. puppeteer's Help has the number 6; Windows' VK_HELP is 47.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init -y >npm.txt
npm install --silent --ignore-scripts puppeteer-core@24.10.0 playwright-core@1.53.0 >npm.txt
cat >look.cjs <<'NODE'
const path = require("path");
const root = path.join(process.cwd(), "node_modules");
const puppeteer = require(path.join(root, "puppeteer-core/lib/cjs/puppeteer/common/USKeyboardLayout.js"))._keyDefinitions;
const playwright = require(path.join(root, "playwright-core/lib/server/usKeyboardLayout.js")).USKeyboardLayout;
const writes = Object.entries(playwright).filter(([, key]) => key.shiftKey === "+").map(([code]) => code);
const seen = {
  plus: [puppeteer["+"].code, puppeteer["+"].keyCode, writes.join()],
  minus: [puppeteer["-"].code, "Minus" in playwright],
  shifted: [puppeteer.a.shiftKey ?? null, puppeteer.KeyA.shiftKey],
  seven: [puppeteer.Numpad7.key, playwright.Numpad7.key],
  help: puppeteer.Help.keyCode,
};
console.log(JSON.stringify(seen));
const wanted = {
  plus: ["NumpadAdd", 107, "Equal"], minus: ["NumpadSubtract", true], shifted: [null, "A"], seven: ["Home", "Home"],
  help: 6,
};
process.exit(JSON.stringify(seen) === JSON.stringify(wanted) ? 0 : 1);
NODE
node look.cjs
