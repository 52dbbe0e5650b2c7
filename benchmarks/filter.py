"""Measure the precision and recall of every gate on planted faults among clean trajectories.

`python -m benchmarks.filter [--short] --json PATH`

A thousand clean, different trajectories, half of them acted in the fake sandbox, and 60 with each of 19 faults
(`tests.fixtures.planted`, which shares no code with the gates) are written as two iterations. The stages filter and
annotate them. A gate's precision is the share of its own faults among the trajectories that it rejected; its recall is
the share of its faults that it rejected. Then the queries of training are searched for planted trajectories: as a
target of imitation, a side of a preference, a member of a group, or anything annotated. `findings` are single steps
without a change, one in each of some clean trajectories, that the filter has to mark.
"""

import io
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.harness import Bar, finish, options
from environments.catalog import tasks_named
from rollout.actor import Actor
from rollout.runner import roll_out_all
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import Config, config_of
from schemas.observation import elements_of
from schemas.table import utc_now
from schemas.tables.verdict import Verdict
from storage.catalog import ask
from storage.lake import Lake
from tasks.annotate import annotate
from tasks.collect.collect import write
from tasks.filter import decide_routes
from tasks.running.console import bar
from tasks.running.run import Run
from tests.fixtures.planted.faults import (
    FAULTS,
    JUDGED,
    LONG,
    REAL,
    Script,
    Solver,
    form,
    noop,
    planted,
    script_of,
)

SIZES = {False: (1000, 60), True: (400, 10)}
"""Clean trajectories, and trajectories with each fault; of a full and of a short run."""
CLEAN = "clean"
HACKS = ("hack: nothing done", "hack: no change", "hack: shortcut", "finished spam")
NEVER = (*HACKS, "no-op loop", "near-duplicate", "near-duplicate that idles")
"""What must not reach a training set."""
BAR = 0.95
APART = 8
"""Pixels that the buttons of two real trajectories of one instruction lie apart at the least: else they are one."""


def different(scripts: Sequence[Script]) -> list[Script]:
    """Successes no two of which have one instruction and the same places to click, give or take `APART` pixels."""
    kept: dict[tuple[str, str], list[np.ndarray]] = {}
    found: list[Script] = []
    for script in scripts:
        if not script.trajectory.success:
            continue
        size = Image.open(io.BytesIO(script.shots[0].png)).size
        boxes = [element.box for element in elements_of(script.shots[0].elements)]
        places = np.array(boxes) * np.array([*size, *size])
        others = kept.setdefault((script.trajectory.task_id, script.trajectory.instruction), [])
        if all(np.abs(places - other).max() >= APART for other in others):
            others.append(places)
            found.append(script)
    return found


def clean_scripts(config: Config, count: int) -> list[Script]:
    """Real and drawn ones, half and half."""
    tasks = tasks_named(config, REAL)
    each = -(-count // 2 // len(tasks))
    planned = [
        PlannedTrajectory("planted", "planted", 0, task, seed, "explorer", Solver.version)
        for task in tasks
        for seed in range(2 * each)
    ]
    done: list[FinishedTrajectory] = []
    with Actor(Solver()) as solver:
        roll_out_all(config, planned, lambda _: [solver], done.extend, bar, "clean ones", for_data=True)
    apart = different([script_of(record) for record in sorted(done, key=lambda one: one.trajectory.trajectory_id)])
    left = Counter[str]()
    real = [one for one in apart if left.update([one.trajectory.task_id]) or left[one.trajectory.task_id] <= each]
    return real[: count // 2] + [form(number, 0) for number in range(count - len(real[: count // 2]))]


def fill(lake: Lake, clean: list[Script], each: int) -> dict[str, str]:
    """Writes two iterations, the faults into the second; what every trajectory is, by its id."""
    chance = random.Random(0)
    shuffled = chance.sample(clean, len(clean))
    first, second = shuffled[: len(clean) // 2], [later(one) for one in shuffled[len(clean) // 2 :]]
    found: dict[str, str] = {}
    faulty: list[Script] = []
    for fault in FAULTS:
        able = [one for one in shuffled if len({shot.png for shot in one.shots}) >= (3 if fault in LONG else 1)]
        faulty += [planted(fault, number, one, 1) for number, one in enumerate(chance.sample(able, each))]
        found |= {one.trajectory.trajectory_id: fault for one in faulty[-each:]}
    found |= {one.trajectory.trajectory_id: CLEAN for one in clean}
    for scripts in (first, second, faulty):
        for start in range(0, len(scripts), 64):
            write(lake, [one.record() for one in scripts[start : start + 64]])
    lake.append("verdicts", [judged(one) for one in faulty if one.trajectory.task_id == JUDGED])
    return found


def later(script: Script) -> Script:
    """The same in the second iteration."""
    return replace(script, trajectory=script.trajectory.model_copy(update={"iteration": 1}))


def judged(script: Script) -> Verdict:
    """What a judge said of a failure."""
    return Verdict(
        trajectory_id=script.trajectory.trajectory_id, gate="judge", gate_version="planted", iteration=1, passed=False,
        score=0.2, error_step=None, reason="not done", route="ct", created_at=utc_now(),
    )  # fmt: skip


def measured(planted_as: dict[str, str], decisions: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], ...]:
    """Rows by gate (precision, recall) and by fault (which gate decided how often)."""
    decided = {row["trajectory_id"]: CLEAN if row["passed"] else row["decided_by"] for row in decisions}
    confusion = Counter((kind, decided[name]) for name, kind in planted_as.items())
    gates = list(dict.fromkeys(gate for gate, _ in FAULTS.values()))
    by_gate: list[dict[str, Any]] = []
    for gate in gates:
        own = {fault for fault, (by, _) in FAULTS.items() if by == gate}
        hits = sum(confusion[fault, gate] for fault in own)
        turned = sum(n for (_, by), n in confusion.items() if by == gate)
        there = sum(kind in own for kind in planted_as.values())
        by_gate.append(
            {"gate": gate, "planted": there, "turned away": turned, "precision": hits / max(1, turned),
             "recall": hits / there}
        )  # fmt: skip
    by_fault = [
        {"planted": kind, **{gate: confusion[kind, gate] or None for gate in [*gates, CLEAN]}}
        for kind in [CLEAN, *FAULTS]
    ]
    return by_gate, by_fault


def reached(lake: Lake, planted_as: dict[str, str]) -> list[dict[str, Any]]:
    """How much of what must teach nobody is in what training reads."""
    shares = {"balance": 0.7, "floor": 0.15, "grounding_share": 0.15, "practice_share": 0.2, "practice": []}
    asked = {**shares, "measured": "", "history_images": 1, "prefixes": "people", "corrections": "all"}
    weighed = ask(lake, "training_weights", **asked).to_pylist()
    pairs = {row["pair_id"] for row in ask(lake, "training_pairs", corrections="all").to_pylist()}
    sides = [row for row in lake.read("pairs").to_pylist() if row["pair_id"] in pairs]
    found = {
        "imitated": {row["trajectory_id"] for row in weighed if not row["grounding"]},
        "preferred": {row["trajectory_id"] for row in sides},
        "dispreferred": {row["rejected_trajectory_id"] for row in sides},
        "in groups": {
            row["trajectory_id"]
            for at in (0, 1)
            for row in ask(lake, "training_groups", iteration=at, groups=None).to_pylist()
        },
        "annotated": set(lake.read("annotations", ["trajectory_id"])["trajectory_id"].to_pylist()),
    }
    return [
        {
            "planted": fault,
            **{where: sum(planted_as.get(name) == fault for name in names) for where, names in found.items()},
        }
        for fault in NEVER
    ]


def findings(lake: Lake, forms: list[Script]) -> tuple[float, float]:
    """Precision and recall of `last_step_redundant` in trajectories with one such step each."""
    names = {one.trajectory.trajectory_id for one in forms}
    rows = lake.read("reflections").to_pylist()
    flagged = {(row["trajectory_id"], row["step"]) for row in rows if row["last_step_redundant"]}
    flagged = {key for key in flagged if key[0] in names}
    there = {(one.trajectory.trajectory_id, at) for one in forms for at, shot in enumerate(one.shots) if shot.thought}
    hits = len(flagged & there)
    return hits / max(1, len(flagged)), hits / len(there)


def main() -> int:
    """Plants, filters, measures."""
    asked = options(__doc__ or "")
    count, each = SIZES[asked.short]
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(
            {
                "lake": {"uri": str(Path(folder) / "lake")},
                "environments": {"fake": {}},
                "suite": {"tasks": list(REAL), "held_out": []},
            }
        )
        lake = Lake.open(config.lake)
        clean = clean_scripts(config, count)
        flawed = [noop(form(2 * count + number, 1), number) for number in range(each)]
        lake.append("tasks", [task for task in tasks_named(config, ["note"]) if task.task_id == JUDGED])
        planted_as = fill(lake, clean, each)
        write(lake, [one.record() for one in flawed])
        run = Run(config, lake, "planted")
        for iteration in (0, 1):
            decide_routes(run, iteration)
            annotate(run, iteration)
        by_gate, by_fault = measured(planted_as, ask(lake, "decisions", iteration=None).to_pylist())
        training = reached(lake, planted_as)
        precision, recall = findings(lake, flawed)
    lost = count - next(row[CLEAN] or 0 for row in by_fault if row["planted"] == CLEAN)
    there = sum(
        row[where]
        for row in training
        for where in row
        if where == "imitated" or (row["planted"] in HACKS and where != "planted")
    )
    bars = [
        *(
            Bar(f"{row['gate']}: {what}", row[what], BAR, "higher")
            for row in by_gate
            for what in ("precision", "recall")
        ),
        Bar(f"clean trajectories lost, of {count}", lost, 0, "lower"),
        Bar("planted ones that reach a training set", there, 0, "lower"),
        Bar("findings: precision", precision, BAR, "higher"),
        Bar("findings: recall", recall, BAR, "higher"),
    ]
    return finish("filter", [*by_gate, *by_fault, *training], bars, asked, [by_gate, by_fault, training])


if __name__ == "__main__":
    sys.exit(main())
