#!/usr/bin/env bash
# Package: harbor 0.26.0 (ATIF of its agent computer-1). Date: 2026-11-27.
# Guess: an ATIF document of a computer-use agent names the screen that its first action was chosen on.
# What happens: the recorder writes only the text of the prompt. The model gets the initial screenshot, but no step holds
# it, so the first action of every document has no observation. A second surprise: `zoom` crops the next image. It is
# recorded as that step's observation like any screen, while points still refer to the desktop.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" download -q --no-deps --python-version 3.12 --only-binary=:all: -d "$folder" harbor==0.26.0
(cd "$folder" && "$folder/venv/bin/python" -m zipfile -e harbor-0.26.0-py3-none-any.whl package)
"$folder/venv/bin/python" - "$folder/package/harbor/agents/computer_1/computer_1.py" <<'PY'
import ast, sys
tree = ast.parse(open(sys.argv[1]).read())
functions = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
(step,) = [n for n in ast.walk(functions["record_initial_prompt"]) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "Step"]
fields = {word.arg: ast.unparse(word.value) for word in step.keywords}
first = [ast.unparse(n) for n in ast.walk(functions["run"]) if isinstance(n, ast.Call) and "screenshot_init" in ast.unparse(n) and "capture" in ast.unparse(n.func)]
recorded = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "attr", "").startswith("record_") and "initial_screenshot" in ast.unparse(n)]
print("first step:", fields)
print("first screen is captured by:", first)
print("calls that record it:", len(recorded))
sys.exit(0 if set(fields) == {"step_id", "timestamp", "source", "message"} and first and not recorded else 1)
PY
