#!/usr/bin/env bash
# Package: cua-bench 0.3.1 (`build_atif`). Date: 2026-11-27.
# Guess: the image in an agent step's observation is the screen after its calls, and each agent step acts.
# What happens: CuaAgent records a reply before its calls are performed, so the image of a click is the screen before it.
# Each call's result becomes an agent step of its own, without message and calls, with the screen after the call.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" download -q --no-deps --python-version 3.12 --only-binary=:all: -d "$folder" cua-bench==0.3.1
(cd "$folder" && "$folder/venv/bin/python" -m zipfile -e cua_bench-0.3.1-py3-none-any.whl package)
"$folder/venv/bin/python" - "$folder" <<'PY'
import importlib.util, json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
spec = importlib.util.spec_from_file_location("results", folder / "package/cua_bench/results.py")
results = importlib.util.module_from_spec(spec)
sys.modules["results"] = results
spec.loader.exec_module(results)
agent = (folder / "package/cua_bench/agents/cua_agent.py").read_text()
loop = agent[agent.index("async for result in agent.run"):]
before = loop.index("screenshot = await session.screenshot()") < loop.index('"agent_step"')
call = {"type": "computer_call", "call_id": "c", "action": {"type": "click", "x": 1, "y": 2, "button": "left"}}
output = {"type": "computer_call_output", "call_id": "c", "output": {"type": "input_image"}}
rows = [{"event_name": "reset", "data_json": "{}", "data_images": [b"S0"]}]
rows += [{"event_name": "agent_step", "data_json": json.dumps({"output": [one]}), "data_images": [shot]} for one, shot in ((call, b"S0"), (output, b"S1"))]
made = results.build_atif(rows, folder / "out", session_id="s", agent_name="a", model_name=None, description="Buy it.", reward=1.0)
for step in made["steps"]:
    print({key: step.get(key) for key in ("source", "message", "tool_calls", "observation")})
empty = [s for s in made["steps"] if s["source"] == "agent" and not s.get("tool_calls") and not s["message"] and s.get("observation")]
print("agent steps that only show a screen:", len(empty))
sys.exit(0 if before and len(empty) == 1 else 1)
PY
