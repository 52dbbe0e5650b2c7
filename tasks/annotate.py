"""Stage: the machine part of annotation."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import zip_longest
from typing import Any

from curation.annotation import (
    error_annotation,
    grounding_annotations,
    inverse_annotation,
    thought_annotation,
    transition_annotation,
)
from schemas.annotation import Annotation
from schemas.observation import elements_of
from schemas.table import utc_now
from tasks.filter import steps_by_trajectory
from tasks.shared.run import Run
from tasks.shared.stage import stage
from tasks.train.preferences import find_pairs

COLUMNS = [
    "trajectory_id", "step", "iteration", "screenshot", "next_screenshot",
    "thought", "action", "action_error", "elements",
]  # fmt: skip
MOST_TARGETS = 12
"""Grounding targets kept per screen; the trainer draws from them."""


@stage("annotate")
def annotate_steps(run: Run, iteration: int) -> dict[str, Any]:
    """Thoughts and grounding for accepted steps; for failed ones grounding too, and what was done and changed from
    screen to screen; the error step where rules can tell; preferences where plays of one task and seed part."""
    config, lake = run.config, run.lake
    verdicts = lake.read("verdicts", where={"iteration": iteration}).to_pylist()
    decisions = {row["trajectory_id"]: row for row in verdicts if row["gate"] == "route"}
    steps = steps_by_trajectory(lake, iteration, COLUMNS)
    rows: list[Annotation] = []
    asked: set[str] = set()
    now = utc_now()
    for trajectory_id, decision in decisions.items():
        if decision["route"] == "none":
            continue
        if decision["error_step"] is not None:
            rows.append(error_annotation(trajectory_id, iteration, decision["error_step"], decision["reason"], now))
        played = steps.get(trajectory_id, [])
        if decision["route"] == "ct":
            rows += _compared(played, now)
        for step in played:
            if decision["route"] == "sft" and (thought := thought_annotation(step, now)):
                rows.append(thought)
            if step["screenshot"] not in asked:
                asked.add(step["screenshot"])
                rows += grounding_annotations(step, elements_of(step["elements"]), MOST_TARGETS, now)
    lake.append("annotations", rows)
    pairs = find_pairs(config, lake, iteration)
    kinds = Counter([*(row.kind for row in rows), *("pair" for _ in range(pairs))])
    return {"annotations": dict(kinds), "say": ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items()))}


def _compared(played: list[dict[str, Any]], now: datetime) -> Iterator[Annotation]:
    """What a failed play's screens say of each other: the elements after a step are those the next one recorded."""
    for step, following in zip_longest(played, played[1:]):
        after = None
        if following is not None and following["screenshot"] == step["next_screenshot"]:
            after = elements_of(following["elements"])
        found = (inverse_annotation(step, now), transition_annotation(step, elements_of(step["elements"]), after, now))
        yield from (annotation for annotation in found if annotation)
