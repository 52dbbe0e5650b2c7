"""Accept trajectories that were imported without an outcome, when their import is repeated with `--demonstrations`.

Each becomes a decision of the reviewer `import`, so that `flywheel trajectories undo` takes the whole operation back.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice

from pydantic import BaseModel, ConfigDict

from curation.gates.registry import gates_of, verdicts_of
from curation.reviews import is_word, standing
from schemas.config import Config
from schemas.table import utc_now
from schemas.tables.review import Review
from schemas.tables.step import Step
from schemas.tables.trajectory import IMPORT, Trajectory
from schemas.tables.verdict import Verdict
from storage.catalog import ask
from storage.lake import Lake
from tasks.exchange.importing import Request, foreign_ids
from tasks.running.boundary import flow_task
from tasks.running.run import run_of
from tasks.shared.gate_facts import TOGETHER, Known
from tasks.shared.many import decide_all
from tasks.shared.trajectories import trajectories_of

NOTE = "imported with --demonstrations"
"""Note of the decisions."""
IDS = 10_000
"""Number of records whose trajectories are read together."""


class Demonstrations(BaseModel):
    """Result of accepting trajectories without an outcome."""

    model_config = ConfigDict(frozen=True)

    accepted: int
    """Number of trajectories that were accepted."""
    batch: str
    """Id by which the decisions are undone; empty if there are none."""
    rejected: dict[str, int]
    """Number of trajectories that a gate rejects as successes, by gate. Their route stays."""


@flow_task("accept-demonstrations")
def accept_demonstrations(config: Config, request: Request) -> Demonstrations:
    """Accept the stored trajectories of a data set that have no outcome and no reviewer's decision.

    The gates check each of them as a success, as they do in a first import with `--demonstrations`.
    """
    lake = run_of(config).lake
    left, rejected = list[str](), Counter[str]()
    by_iteration: dict[int, set[str]] = {}
    for row in _without_outcome(lake, request):
        by_iteration.setdefault(row.iteration, set()).add(row.trajectory_id)
    for iteration, names in sorted(by_iteration.items(), reverse=True):
        for decision in _decisions(config, lake, iteration, names):
            if decision.passed:
                left.append(decision.trajectory_id)
            else:
                rejected[decision.reason.partition(":")[0]] += 1
    if not left:
        return Demonstrations(accepted=0, batch="", rejected=rejected)
    done = decide_all(lake, left, "accept", IMPORT, NOTE)
    return Demonstrations(accepted=len(done.trajectories), batch=done.batch, rejected=rejected)


def _without_outcome(lake: Lake, request: Request) -> Iterator[Trajectory]:
    """Yield the data set's trajectories without an outcome on which no reviewer has decided."""
    names = iter(dict.fromkeys(foreign_ids(lake, request)))
    while some := list(islice(names, IDS)):
        rows = lake.rows(Trajectory, {"trajectory_id": some})
        open_ = [row for row in rows if row.success is None and row.failure_boundary is None]
        reviews: dict[str, list[Review]] = {}
        for review in lake.rows(Review, {"trajectory_id": [row.trajectory_id for row in open_]}):
            reviews.setdefault(review.trajectory_id, []).append(review)
        yield from (row for row in open_ if not any(map(is_word, standing(reviews.get(row.trajectory_id, ())))))


def _decisions(config: Config, lake: Lake, iteration: int, names: set[str]) -> Iterator[Verdict]:
    """Yield the filter's decisions on these trajectories of an import, as if they were successes."""
    gates, known, now = gates_of(config.filter), Known(lake, iteration), utc_now()
    decided = ask(lake, "decisions", iteration=iteration).to_pylist()
    accepted = {row["trajectory_id"] for row in decided if row["route"] == "sft"}
    for row, steps in _still(lake, iteration, known, accepted):
        known.note(row, steps, "sft")
    for row, steps in _still(lake, iteration, known, names):
        claimed = _claimed(row)
        decision = verdicts_of(gates, claimed, steps, known.context(claimed, None), now)[-1]
        known.note(claimed, steps, decision.route)
        yield decision


def _still(lake: Lake, iteration: int, known: Known, names: Collection[str]) -> Iterator[tuple[Trajectory, list[Step]]]:
    """Yield some trajectories of an iteration, with steps as gates compare them (`Known.still`)."""
    found = ((row, steps) for row, steps in trajectories_of(lake, iteration) if row.trajectory_id in names)
    while names and (chunk := list(islice(found, TOGETHER))):
        for (row, _), steps in zip(chunk, known.still(chunk), strict=True):
            yield row, steps


def _claimed(row: Trajectory) -> Trajectory:
    """Return a trajectory without an outcome as a success."""
    done = "done" if row.termination == "max_steps" else row.termination
    return row.model_copy(update={"success": True, "reward": 1.0, "termination": done})
