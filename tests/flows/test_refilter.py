"""The gates over stored trajectories: what changes, what stays, and that whoever is cut short goes on."""

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from curation.gates.gate import Gate, GateContext, GateResult
from flows.data import refilter
from flows.flywheel import collect
from schemas.config import Config, config_of
from schemas.config.section import Section
from schemas.failure import UsageError
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory
from storage.catalog import ask
from storage.lake import Lake


class Fragile(Gate[Section]):
    """Turns everything away; breaks in the iteration that it is told to."""

    name = "fragile"
    breaks_in: ClassVar[int | None] = None

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        assert trajectory.iteration != self.breaks_in
        return GateResult(False, "no", error_step=1)


def filtered(config: Config, **changes: Any) -> Config:
    return config_of({**config.model_dump(), "filter": {**config.filter.model_dump(), **changes}})


def routes(config: Config) -> dict[str, str]:
    return {
        row["trajectory_id"]: row["route"]
        for row in ask(Lake.open(config.lake), "decisions", iteration=None).to_pylist()
    }


def copy_first_iteration(lake: Lake) -> None:
    """The same again as iteration 1, under other names."""
    for table in ("trajectories", "steps"):
        rows = lake.read(table).to_pylist()
        lake.append(table, [{**row, "trajectory_id": f"copy {row['trajectory_id']}", "iteration": 1} for row in rows])


@pytest.mark.slow
def test_other_gates_decide_anew_and_the_report_says_what_changed(small: Config) -> None:
    collect(small)
    before = routes(small)
    assert refilter(small).changed == 0 and routes(small) == before
    waiting = filtered(small, options={"people": {"share": 1.0, "wait": True}})
    found = refilter(waiting, (0, 1))
    accepted = sum(route == "sft" for route in before.values())
    (flip,) = found.flips
    assert (flip.was, flip.now, flip.gate, flip.n) == ("sft", "quarantine", "people", accepted)
    assert set(flip.examples) <= {name for name, route in before.items() if route == "sft"}
    assert found.changed == accepted == found.routes.after["quarantine"] > 0
    assert found.gates.after["people"] == accepted and "people" not in found.gates.before
    assert "sft" not in routes(small).values()
    (back,) = refilter(small).flips
    assert (back.now, back.gate, back.n) == ("sft", "people", accepted) and routes(small) == before
    with pytest.raises(UsageError, match="iterations 0 to 0"):
        refilter(small, (7, 9))


@pytest.mark.slow
def test_what_is_cut_short_goes_on_and_reports_the_whole(small: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    collect(small)
    copy_first_iteration(Lake.open(small.lake))
    copied = refilter(small, (1, 2))
    before = routes(small)
    assert {(flip.was, flip.now, flip.gate) for flip in copied.flips} >= {("undecided", "rl", "duplicates")}
    all_gone = filtered(small, gates=("environment", f"{__name__}:Fragile"))
    monkeypatch.setattr(Fragile, "breaks_in", 1)
    with pytest.raises(AssertionError):
        refilter(all_gone)
    monkeypatch.setattr(Fragile, "breaks_in", None)
    found = refilter(all_gone)
    assert found.iterations == [0, 1] and found.trajectories == len(before)
    assert found.changed == sum(route != "ct" for route in before.values()) > 0
    assert refilter(all_gone).changed == 0
