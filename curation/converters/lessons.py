"""Select the steps of a trajectory that other trainers imitate, and the place of the other steps.

For an accepted trajectory, the targets are those of a training in this project: an export runs the same query
(`storage/queries/training_weights.sql`), and each step has its result (`StepAbout.target`). For other trajectories, all
steps are targets, with four exceptions: steps that an import's source excludes, replayed steps, steps after a step that
a proposer corrected, and steps that a reviewer's correction replaces. The correction is then a target, after the steps
before it. If a format's rows are all targets, without a mask, a trajectory with other steps is written twice. Its
targets are separate rows (`copied`), and the whole trajectory is written for imports to the folder `CONTEXT`, which no
trainer reads.
"""

from collections.abc import Iterator
from dataclasses import replace

from curation.converters.exchanged import Exchanged, RecordPlace, RecordRefused
from schemas.action import from_json


def whole(record: Exchanged) -> bool:
    """Whether every step is a target."""
    return all(record.is_target(number) for number in range(len(record.steps)))


def lessons_of(record: Exchanged) -> Iterator[Exchanged]:
    """Yield all targets, in order; a target is the reply of a record's last step."""
    instead = {len(one.steps) - 1: one for one in corrected(record)}
    for number in range(len(record.steps)):
        if record.is_target(number):
            yield replace(record, steps=record.steps[: number + 1])
        elif number in instead:
            yield instead[number]


def corrected(record: Exchanged) -> Iterator[Exchanged]:
    """Yield reviewers' corrections that are targets, each as the last step of a record."""
    for number, step in enumerate(record.steps):
        given = step.about.correction
        if given is None or not given.taught:
            continue
        about = step.about.model_copy(update={"correction": None, "target": True})
        meant = replace(
            step,
            thought=given.thought,
            actions=(from_json(given.action),),
            frames=(),
            text="",
            error=None,
            about=about,
            extra={},
        )
        yield replace(record, steps=(*record.steps[:number], meant), extra={})


class Wholes:
    """Trajectories that were read whole, so that copies of their targets can be skipped."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def add(self, record: Exchanged) -> None:
        """Record a trajectory or a row; only trajectories that a format writes twice are kept."""
        about = record.about
        if not whole(record) or any(corrected(record)):
            self._names.add(f"{about.lake}/{about.trajectory_id}")

    def missing(self, record: Exchanged, place: RecordPlace) -> RecordRefused | None:
        """Return the problem of a copy whose trajectory was not read."""
        problem = "a copy of a step whose trajectory is not here: import the whole folder that was exported"
        there = f"{record.about.lake}/{record.about.trajectory_id}" in self._names
        return None if there else RecordRefused(place, "flywheel.copied", problem)
