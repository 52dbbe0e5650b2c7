"""Take trajectories that were imported without an outcome as successes, when `--demonstrations` repeats their import.

Their rows become those of a first import with `--demonstrations`, and the filter decides on them again.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from pydantic import BaseModel, ConfigDict

from curation.converters.rows import claimed
from curation.reviews import is_word, standing
from schemas.config import Config
from schemas.tables.review import Review
from schemas.tables.stage import chronological
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.annotate import annotate
from tasks.exchange.importing import Request, foreign_ids, mark_demonstrations
from tasks.filter import decide
from tasks.running.boundary import flow_task
from tasks.running.run import run_of
from tasks.shared.reviews import decisions_of
from tasks.think.think import think

IDS = 10_000
"""Number of records whose trajectories are read together."""


class Demonstrations(BaseModel):
    """Result of taking trajectories without an outcome as successes."""

    model_config = ConfigDict(frozen=True)

    accepted: int
    """Number of trajectories that the filter accepted."""
    iterations: list[int]
    """Iterations of the trajectories, the oldest import first."""
    rejected: dict[str, int]
    """Number of trajectories that a gate rejected, by gate."""


@flow_task("accept-demonstrations")
def accept_demonstrations(config: Config, request: Request, name: str) -> Demonstrations:
    """Take the stored trajectories of a data set that have no outcome and no reviewer's decision as successes.

    If the process is killed, the same call continues.

    Args:
        config: the resolved config.
        request: the data set and its format.
        name: name of the data set.
    """
    run = run_of(config)
    lake, accepted, rejected = run.lake, 0, Counter[str]()
    by_iteration: dict[int, list[Trajectory]] = {}
    for row in _undecided(lake, request):
        by_iteration.setdefault(row.iteration, []).append(row)
    done = list[int]()
    for iteration, rows in sorted(by_iteration.items(), key=lambda one: chronological(one[0])):
        routes = decisions_of(lake, iteration)
        # a successful one with this route is left from a process that was killed before the filter
        left = {name for name, decision in routes.items() if decision.route == "ct"}
        names = {row.trajectory_id for row in rows if row.success is None or row.trajectory_id in left}
        if not names:
            continue
        lake.upsert("trajectories", [claimed(row) for row in rows if row.success is None])
        decided, _, _ = decide(config, lake, iteration, names)
        think(run, iteration)
        annotate(run, iteration)
        accepted += sum(one.passed for one in decided)
        rejected.update(one.reason.partition(":")[0] for one in decided if not one.passed)
        done.append(iteration)
    mark_demonstrations(lake, name)
    return Demonstrations(accepted=accepted, iterations=done, rejected=rejected)


def _undecided(lake: Lake, request: Request) -> Iterator[Trajectory]:
    """Yield the data set's trajectories that did not fail, and on which no reviewer has decided."""
    names = iter(dict.fromkeys(foreign_ids(lake, request)))
    while some := list(islice(names, IDS)):
        rows = lake.rows(Trajectory, {"trajectory_id": some})
        open_ = [row for row in rows if row.success is not False and row.failure_boundary is None]
        reviews: dict[str, list[Review]] = {}
        for review in lake.rows(Review, {"trajectory_id": [row.trajectory_id for row in open_]}):
            reviews.setdefault(review.trajectory_id, []).append(review)
        yield from (row for row in open_ if not any(map(is_word, standing(reviews.get(row.trajectory_id, ())))))
