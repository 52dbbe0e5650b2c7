"""Stage `annotate`: annotate trajectories by rules and models."""

from collections import Counter

from curation.annotation import annotations_of
from curation.perception.perceive import Chosen
from schemas.table import utc_now
from schemas.tables.stage import PlainResult
from tasks.perceive import perception_of
from tasks.running.run import Run
from tasks.running.stage import stage
from tasks.shared.material import RowPacker
from tasks.shared.reviews import decisions_of
from tasks.shared.trajectories import trajectories_of
from tasks.train.preferences import find_pairs


def annotate(run: Run, iteration: int) -> PlainResult:
    """Annotate an iteration's trajectories, and make its perception data and preferences.

    Steps of accepted and failed trajectories get grounding targets. Steps of failed trajectories also get the action
    and the change between two screens, and the error step if rules find it. Perception data comes from a sample of
    screens. Preferences come from two trajectories of one task and seed that part at some step.
    """
    lake = run.lake
    decisions = decisions_of(lake, iteration)
    now, chosen = utc_now(), Chosen(decisions, run.config.annotate.screens)
    trajectories = chosen.passing(steps for _, steps in trajectories_of(lake, iteration))
    rows = RowPacker("annotations")
    rows.add(annotations_of(decisions, trajectories, now))
    rows.add(perception_of(run.config, lake, chosen, now))
    found = rows.whole()
    lake.append("annotations", found)
    kinds = Counter(found["kind"].to_pylist())
    compared = find_pairs(run.config, lake, iteration)
    if compared.pairs:
        kinds["pair"] = len(compared.pairs)
    counts = ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items()))
    text = "; ".join(filter(None, (counts and f"annotations: {counts}", compared.text)))
    dropped = {"tied": compared.tied, "contrary": compared.contrary, "unanswered": compared.unanswered.total()}
    return PlainResult(text=text, numbers={"annotations": dict(kinds), "pairs": dropped})


annotate_steps = stage("annotate")(annotate)
