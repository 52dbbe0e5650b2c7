#!/bin/bash
# Package: vllm 0.33.0, 2026-11-27.
# An expert would guess: /is_paused and /is_sleeping distinguish a paused server from a sleeping one.
# What happens: a paused engine reports that it sleeps, and a sleeping one that it is paused, so both answers are the same
# in both states. /wake_up of a paused engine resumes it. The answer of /wake_up for a part of the memory distinguishes
# the two, but too late: it is "awake" (True) for an engine that was only paused and is then no longer paused. Releases
# before 0.32 return no answer, so a client that changes weights has to pause again after it in any case.
# The engine core's own methods run here without a GPU, on a stand-in for its workers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps --target "$folder/vllm" vllm==0.33.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import ast, enum, sys, time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args


def methods(file, owner, names, scope):
    """The class with these methods, of the package's source."""
    tree = ast.parse(Path("vllm/vllm", file).read_text())
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner).body
    kept = [node for node in body if isinstance(node, ast.FunctionDef) and node.name in names]
    made = ast.ClassDef(owner, [], [], kept, [], type_params=[]) if sys.version_info >= (3, 12) else ast.ClassDef(owner, [], [], kept, [])
    exec(compile(ast.fix_missing_locations(ast.Module([made], [])), file, "exec"), scope)
    return scope[owner]


class PauseState(enum.IntEnum):
    UNPAUSED, PAUSED_NEW, PAUSED_ALL = range(3)


class Scheduler:
    pause_state = PauseState.UNPAUSED

    def set_pause_state(self, state):
        self.pause_state = state

    def finish_requests(self, *_):
        pass


quiet = SimpleNamespace(info=print, warning=lambda *_: None)
quiet.info = lambda *_: None
tags = {"weights", "kv_cache"}
executor = methods("v1/executor/abstract.py", "Executor", {"is_sleeping", "sleep", "wake_up"},
                   {"logger": quiet, "time": time, "SLEEP_TAGS": tags})
scope = {"logger": quiet, "PauseState": PauseState, "Future": Future, "Any": Any, "get_args": get_args,
         "PauseMode": Literal["abort", "wait", "keep"], "RequestStatus": SimpleNamespace(FINISHED_ABORTED=None)}
names = {"pause_scheduler", "resume_scheduler", "is_scheduler_paused", "sleep", "wake_up", "is_sleeping"}
core = methods("v1/engine/core.py", "EngineCore", names, scope)


def engine():
    made = core()
    made.scheduler, made.model_executor = Scheduler(), executor()
    made.model_executor.sleeping_tags = set()
    made.model_executor.collective_rpc = lambda *_, **__: None
    made._finish_pause = lambda *_: None
    made._set_kv_connector_handshake_metadata = lambda: None
    return made


found = {}
for state in ("paused", "asleep"):
    one = engine()
    one.pause_scheduler("abort") if state == "paused" else one.sleep(2)
    before = (one.is_sleeping(), one.is_scheduler_paused())
    woken = one.wake_up(["weights"])
    found[state] = (*before, woken, one.is_scheduler_paused())
    print(f"{state}: is_sleeping {before[0]}, is_paused {before[1]}; wake_up(weights) {woken}, then paused {found[state][3]}")
sys.exit(0 if found == {"paused": (True, True, True, False), "asleep": (True, True, False, True)} else 1)
PYTHON
