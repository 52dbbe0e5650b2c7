"""One operation decides on many trajectories, and one undo takes it back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.config.sections import LakeConfig
from schemas.failure import UsageError
from schemas.tables.review import Review
from storage.catalog import ask
from storage.lake import Lake
from tasks.shared.many import decide_all, newest_batches, undo_batch
from tasks.shared.reviews import Draft, reviews_of, settle, submit
from tests.fixtures.sentences import Sentences
from tests.unit.storage.conftest import DEFAULTS

NAMES = [f"t{number}" for number in range(6)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Six filtered trajectories; the last one's sandbox died."""
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    dead = {"success": None, "reward": None, "failure_boundary": "sandbox"}
    rows = [{**DEFAULTS["trajectories"], "trajectory_id": name, "iteration": number % 2,
             **(dead if name == NAMES[-1] else {})} for number, name in enumerate(NAMES)]  # fmt: skip
    lake.append("trajectories", rows)
    for row in rows:
        own = {"trajectory_id": row["trajectory_id"], "iteration": row["iteration"]}
        lake.append("steps", [{**DEFAULTS["steps"], **own}])
        lake.append("verdicts", [{**DEFAULTS["verdicts"], **own, "route": "none" if row["success"] is None else "rl"}])
    return lake


def routes(lake: Lake) -> dict[str, str]:
    return {row["trajectory_id"]: row["route"] for row in ask(lake, "decisions", iteration=None).to_pylist()}


def test_many_are_decided_and_undone_together(lake: Lake) -> None:
    before = routes(lake)
    done = decide_all(lake, [*NAMES, NAMES[0]], "accept", "Ada", "all of them work")
    assert done.trajectories == NAMES[:-1] and sum(done.left_out.values()) == 1
    assert "environment failed" in next(iter(done.left_out))
    assert routes(lake) == {name: "sft" for name in NAMES[:-1]} | {NAMES[-1]: "none"}
    (review,) = reviews_of(lake, NAMES[0])
    assert (review.person, review.note, review.batch) == ("Ada", "all of them work", done.batch)
    undone = undo_batch(lake, done.batch, "Bob")
    assert undone.trajectories == NAMES[:-1] and routes(lake) == before
    assert newest_batches(lake) == [done.batch] and settle(lake) == 0


@pytest.mark.parametrize("route", ["sft", "ct", "rl", "quarantine", "none"])
def test_a_route_is_a_decision(lake: Lake, route: str) -> None:
    decide_all(lake, NAMES[:2], f"route:{route}", "Ada")
    assert {routes(lake)[name] for name in NAMES[:2]} == {route} and routes(lake)[NAMES[2]] == "rl"
    (review,) = reviews_of(lake, NAMES[0])
    assert (review.decision, review.route) == ("accept" if route == "sft" else "reject", route)


@pytest.mark.parametrize(
    "decision", ["accept", "reject", *(f"route:{one}" for one in ("sft", "ct", "rl", "quarantine"))]
)
def test_a_trajectory_whose_environment_failed_is_left_out(lake: Lake, decision: str) -> None:
    done = decide_all(lake, NAMES[-2:], decision, "Ada")
    assert done.trajectories == [NAMES[-2]] and routes(lake)[NAMES[-1]] == "none"
    ((reason, count),) = done.left_out.items()
    assert "environment failed" in reason and count == 1 and reviews_of(lake, NAMES[-1]) == []


def test_the_same_operation_again_decides_nothing_and_another_one_replaces_it(lake: Lake) -> None:
    first = decide_all(lake, NAMES[:3], "reject", "Ada")
    again = decide_all(lake, NAMES[:3], "reject", "Bob")
    assert (again.trajectories, again.batch, again.left_out) == ([], "", {"the same decision holds already": 3})
    second = decide_all(lake, NAMES[:2], "accept", "Bob")
    assert {routes(lake)[name] for name in NAMES[:2]} == {"sft"}
    undo_batch(lake, second.batch, "Bob")
    assert {routes(lake)[name] for name in NAMES[:3]} == {"ct"}
    undo_batch(lake, first.batch, "Bob")
    assert {routes(lake)[name] for name in NAMES[:3]} == {"rl"}


def test_a_dry_run_counts_and_writes_nothing(lake: Lake) -> None:
    done = decide_all(lake, NAMES, "accept", "Ada", dry_run=True)
    assert (len(done.trajectories), done.batch, lake.count("reviews")) == (5, "", 0)


def test_a_decision_that_another_reviewer_wrote_meanwhile_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Lake.append

    def later(self: Lake, table: str, rows: object) -> int:
        if table == "reviews":
            monkeypatch.undo()
            submit(lake, Draft(NAMES[1], 0, "Bob", "reject"))
        return append(self, table, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(Lake, "append", later)
    done = decide_all(lake, NAMES[:3], "accept", "Ada")
    assert done.trajectories == [NAMES[0], NAMES[2]]
    assert done.left_out == {"another reviewer decided meanwhile": 1}
    assert [routes(lake)[name] for name in NAMES[:3]] == ["sft", "ct", "sft"]


def test_effects_that_a_kill_left_out_are_written_later(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.shared.many.write_effects", lambda *_: 0)
    decide_all(lake, NAMES[:3], "accept", "Ada")
    monkeypatch.undo()
    assert routes(lake)[NAMES[0]] == "rl" and settle(lake) == 3 and routes(lake)[NAMES[0]] == "sft"


@pytest.mark.parametrize(
    ("act", "named"),
    [
        (lambda lake: decide_all(lake, NAMES, "route:nowhere", "Ada"), "`decision`"),
        (lambda lake: decide_all(lake, NAMES, "correct", "Ada"), "`decision`"),
        (lambda lake: decide_all(lake, [*NAMES, "nobody"], "accept", "Ada"), "`trajectory_id`"),
        (lambda lake: decide_all(lake, [], "accept", "Ada"), "`ids`"),
        (lambda lake: decide_all(lake, NAMES, "accept", "?"), "`person`"),
        (lambda lake: decide_all(lake, NAMES, "accept", "Ada", "\x1b"), "`note`"),
        (lambda lake: undo_batch(lake, "nothing", "Ada"), "`batch`"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(
    lake: Lake, act: Callable[[Lake], object], named: str, sentence: Sentences
) -> None:
    with sentence.raises(UsageError, named):
        act(lake)
    assert lake.rows(Review) == []


def test_an_operation_is_undone_once(lake: Lake) -> None:
    done = decide_all(lake, NAMES[:1], "accept", "Ada")
    undo_batch(lake, done.batch, "Ada")
    with pytest.raises(UsageError, match="undone already"):
        undo_batch(lake, done.batch, "Ada")
