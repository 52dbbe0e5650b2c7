#!/usr/bin/env bash
# miniwob 1.0 with browsergym-miniwob 0.14.3, 2026-11-27
#
# Guess: an agent that presses Submit at once, without looking, fails `click-checkboxes` unless it says "Select nothing".
# What happens: the page's reward is the share of right boxes minus the share of wrong ones, and boxes that are rightly
# left empty count as right. So an untouched form has a positive reward in 38 % of the instances (10 % ask for nothing).
# BrowserGym treats each positive reward as 1, so it counts all of them as solved.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet browsergym-miniwob==0.14.3 mini-racer==0.14.1
"$folder/venv/bin/pip" install --quiet --no-deps miniwob==1.0
"$folder/venv/bin/python" - <<'PY'
import re
from importlib.util import find_spec
from pathlib import Path

from browsergym.miniwob.all import ClickCheckboxesTask
from py_mini_racer import MiniRacer

# the page's own script, on stand-ins for what it draws with
AROUND = """
var handler = null, reward = null, query = "";
var node = (name) => ({
  attr: () => node(), append: () => node(), html: (text) => { if (name === "#query") query = text; return node(); },
  on: (kind, call) => { handler = call; return node(); }, 0: [{ innerHTML: "", checked: false }],
});
var d3 = { select: node }, window = {}, ui_utils = { generateString: () => "word" };
var core = {
  randi: (low, high) => low + Math.floor(Math.random() * (high - low)),
  randf: (low, high) => low + Math.random() * (high - low), endEpisode: (given) => { reward = given; },
};
"""
pages = Path(find_spec("miniwob").submodule_search_locations[0], "html", "miniwob")
(script,) = re.findall(r"<script>(.*?)</script>", (pages / "click-checkboxes.html").read_text(), re.S)
engine = MiniRacer()
engine.eval(AROUND + script)


class Page:
    url = "page"


def solved(raw: float) -> float:
    """What BrowserGym makes of a raw reward."""
    task = object.__new__(ClickCheckboxesTask)
    task.page, task.url = Page(), "page"
    task._get_info = lambda: {"RAW_REWARD_GLOBAL": raw, "DONE_GLOBAL": True}
    return task.validate(task.page, [])[0]


TRIES = 4000
found = [engine.eval("genProblem(); handler(); `${reward} ${query}`").split(" ", 1) for _ in range(TRIES)]
asked = [query for _, query in found]
counted = sum(solved(float(raw)) for raw, _ in found) / TRIES
nothing = sum("Select nothing" in query for query in asked) / TRIES
print(f"Submit alone: {counted:.0%} solved for BrowserGym, {nothing:.0%} ask for nothing")
raise SystemExit(0 if 0.34 < counted < 0.42 and 0.07 < nothing < 0.13 else 1)
PY
