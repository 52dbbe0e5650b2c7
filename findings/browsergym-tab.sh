#!/usr/bin/env bash
# browsergym-core 0.14.3, 2026-11-29
#
# Its `HighLevelActionSet` reads an agent's `fill("12", "...")` and returns the Python code that acts.
# Guess: quoted text reaches the page as it is written, as a Python literal would.
# What happens: each tab character is first replaced by spaces up to the next multiple of eight columns of the *action*.
# So a row that is copied from a table is typed without its tabs, and the number of spaces depends on the length of the
# element's id and of the words before it. The escape `\t` is typed as a tab.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet browsergym-core==0.14.3
"$folder/venv/bin/python" - <<'PY'
import ast

from browsergym.core.action.highlevel import HighLevelActionSet

actions = HighLevelActionSet(subsets=["bid"])


def typed(action: str) -> str:
    """Returns the text that the generated code fills in."""
    call = ast.parse(actions.to_python_code(action)).body[-1].value
    return ast.literal_eval(call.args[1])


short, long, escaped = (typed(f'fill("{bid}", "ada{tab}7")') for bid, tab in (("1", "\t"), ("104", "\t"), ("1", r"\t")))
python = ast.literal_eval('"ada\t7"')
print(f"Python's literal: {python!r}")
print(f"fill in '1': {short!r}, in '104': {long!r}, with the escape: {escaped!r}")
expected = "\t" in python and escaped == python and "\t" not in short + long and short != long
raise SystemExit(0 if expected and short.split() == long.split() == ["ada", "7"] else 1)
PY
