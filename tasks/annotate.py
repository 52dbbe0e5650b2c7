"""Stage: the machine part of annotation."""

from collections import Counter
from typing import Any

from curation.annotation import Decision, annotations_of
from curation.perception.perceive import Chosen
from schemas.table import utc_now
from storage.catalog import ask
from tasks.perceive import perception_of
from tasks.running.run import Run
from tasks.running.stage import stage
from tasks.shared.packed import Packed
from tasks.shared.trajectories import trajectories_of
from tasks.train.preferences import find_pairs


def annotate(run: Run, iteration: int) -> dict[str, Any]:
    """Grounding for accepted and failed steps; of failed ones what was done and changed from screen to screen, and the
    error step where rules can tell; perception data of some screens; preferences where trajectories of one task and
    seed part."""
    lake = run.lake
    decisions = {
        row["trajectory_id"]: Decision(row["route"], row["reason"], row["error_step"], row["valid_steps"])
        for row in ask(lake, "decisions", iteration=iteration).to_pylist()
    }
    now, chosen = utc_now(), Chosen(decisions, run.config.annotate.screens)
    trajectories = chosen.passing(steps for _, steps in trajectories_of(lake, iteration))
    rows = Packed("annotations")
    rows.add(annotations_of(decisions, trajectories, now))
    rows.add(perception_of(run.config, lake, chosen, now))
    found = rows.whole()
    lake.append("annotations", found)
    kinds = Counter(found["kind"].to_pylist())
    if pairs := find_pairs(run.config, lake, iteration):
        kinds["pair"] = pairs
    return {"annotations": dict(kinds), "say": ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items()))}


annotate_steps = stage("annotate")(annotate)
