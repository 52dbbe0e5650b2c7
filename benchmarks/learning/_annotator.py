"""Decide on trajectories of the fake sandbox at the HTTP API of the desk, as a careful reviewer does.

The annotator reads the desk's view of a trajectory: instruction, actions and screen elements. It accepts a success that
did the task, corrects a failure at its first wrong step, and rejects a trajectory without anything to correct.
"""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.arms import Arm

PERSON = "scripted annotator"
Shown = dict[str, Any]
Wanted = tuple[str, str]
"""What is to be done next: `click` and an element's name (the text field's is empty), or `type` and a word."""


def wanted_of(instruction: str) -> list[Wanted]:
    """What an instruction of the fake sandbox asks for, in order."""
    typed = re.match(r'Type "([^"]*)"', instruction)
    names = [name for name in re.findall(r'"([^"]*)"', instruction)][bool(typed) :]
    first: list[Wanted] = [("click", ""), ("type", typed[1])] if typed else []
    return [*first, *(("click", name) for name in names)]


def first_wrong(item: Shown) -> tuple[int, Wanted] | None:
    """The first step that does not do what is asked next, and what it should have done; None where all did."""
    left = wanted_of(item["instruction"])
    for step in item["steps"]:
        if not left:
            return None
        if not _does(step, left[0]):
            return step["step"], left[0]
        left = left[1:]
    return None


def decision_on(item: Shown) -> Shown:
    """The fields of its decision on a trajectory."""
    if item["success"]:
        return {"decision": "accept"}
    wrong = first_wrong(item)
    if wrong is None:
        return {"decision": "reject"}
    step, (kind, name) = wrong
    if kind == "type":
        return {"decision": "correct", "step": step, "action": {"type": "type", "content": name}, "thought": "Type it."}
    left, top, right, bottom = _box(item["steps"][step], name)
    action = {"type": "click", "x": (left + right) / 2, "y": (top + bottom) / 2}
    return {"decision": "correct", "step": step, "action": action, "thought": "Click it."}


def annotate(address: str, tasks: Sequence[str], decisions: int) -> Counter[str]:
    """Decides on what the queue offers first of each task, the tasks in turn, so often; returns how often what."""
    done: Counter[str] = Counter()
    offered = [_ask(f"{address}/api/queue?limit=200&task={task}") for task in tasks]
    turns = [one for turn in range(200) for queue in offered for one in queue[turn : turn + 1]]
    for place in turns[:decisions]:
        item = _ask(f"{address}/api/trajectories/{place['trajectory_id']}")
        common = {"trajectory_id": item["trajectory_id"], "revision": item["revision"], "person": PERSON}
        decided = decision_on(item)
        _ask(f"{address}/api/reviews", common | decided)
        done[decided["decision"]] += 1
    return done


@contextmanager
def desk_of(arm: Arm) -> Iterator[str]:
    """The address of a desk over an arm's lake, in a process of its own."""
    command = [sys.executable, "-m", "apps.cli", "desk", "--port", "0", "--config", arm.config, *arm.overrides]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as desk:
        assert desk.stdout is not None
        try:
            yield desk.stdout.readline().split()[1].rstrip("/")
        finally:
            desk.send_signal(signal.SIGTERM)


def _does(step: Shown, wanted: Wanted) -> bool:
    action, (kind, name) = json.loads(step["action"] or "{}"), wanted
    if kind == "type":
        return action.get("type") == "type" and action["content"] == name
    if action.get("type") != "click":
        return False
    left, top, right, bottom = _box(step, name)
    return left <= action["x"] <= right and top <= action["y"] <= bottom


def _box(step: Shown, name: str) -> tuple[float, float, float, float]:
    return next(tuple(box) for found, _, box in step["elements"] if found == name)


def _ask(url: str, body: Shown | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}: {error.code} {error.read()[:500].decode()}") from error
