"""Stage: the machine part of annotation."""

from collections import Counter
from typing import Any

from learning.annotation import error_annotation, grounding_annotations, thought_annotation
from schemas.annotation import Annotation
from schemas.config import Config
from schemas.observation import elements_of
from schemas.table import utc_now
from storage.lake import Lake
from tasks.filter import steps_by_trajectory
from tasks.preferences import find_pairs
from tasks.stage import stage

MOST_TARGETS = 12
"""Grounding targets kept per screen; the trainer draws from them."""


@stage("annotate")
def annotate_steps(config: Config, lake: Lake, iteration: int) -> dict[str, Any]:
    """Thoughts and grounding for accepted steps, grounding for failed ones too, the error step where rules can tell,
    and preferences where plays of one task and seed part."""
    verdicts = lake.read("verdicts", where={"iteration": iteration}).to_pylist()
    decisions = {row["trajectory_id"]: row for row in verdicts if row["gate"] == "route"}
    columns = ["trajectory_id", "step", "iteration", "screenshot", "thought", "action", "elements"]
    steps = steps_by_trajectory(lake, iteration, columns)
    rows: list[Annotation] = []
    asked: set[str] = set()
    now = utc_now()
    for trajectory_id, decision in decisions.items():
        if decision["route"] == "none":
            continue
        if decision["error_step"] is not None:
            rows.append(error_annotation(trajectory_id, iteration, decision["error_step"], decision["reason"], now))
        for step in steps.get(trajectory_id, []):
            elements = elements_of(step["elements"])
            if decision["route"] == "sft" and (thought := thought_annotation(step, elements, now)):
                rows.append(thought)
            if step["screenshot"] not in asked:
                asked.add(step["screenshot"])
                rows += grounding_annotations(step, elements, MOST_TARGETS, now)
    lake.append("annotations", rows)
    pairs = find_pairs(config, lake, iteration)
    kinds = Counter([*(row.kind for row in rows), *("pair" for _ in range(pairs))])
    return {"annotations": dict(kinds), "say": ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items()))}
