"""Tags and notes on trajectories, policies and runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from apps.commands.forgetting import forget_trajectories
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.shared.finding import Wanted, find
from tasks.shared.tags import add_tag, remove_tag, subjects_of, tags_of
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import make_place


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return make_place(tmp_path).lake


def one_of(lake: Lake, **wanted: object) -> str:
    return find(lake, Wanted(**wanted), 1).rows[0].row.trajectory_id  # type: ignore[arg-type]


def test_trajectories_policies_and_runs_have_tags_and_notes(lake: Lake) -> None:
    collected, evaluated = one_of(lake), one_of(lake, evaluations=True)
    names = [collected, evaluated, "policy-0001", "run"]
    assert len(add_tag(lake, names, "flaky", "Ada")) == 4 and add_tag(lake, names, "flaky", "Bob") == []
    add_tag(lake, ["policy-0001"], "", "Bob", "the first good one")
    assert [(one.tag, one.note, one.person) for one in tags_of(lake, ["policy-0001"])] == [
        ("flaky", "", "Ada"), ("", "the first good one", "Bob"),
    ]  # fmt: skip
    assert find(lake, Wanted(tag="flaky")).total == find(lake, Wanted(tag="flaky", evaluations=True)).total == 1
    assert len(remove_tag(lake, [collected, "run"], "flaky", "Bob")) == 2
    assert find(lake, Wanted(tag="flaky")).total == 0 and tags_of(lake, ["run"]) == []
    assert len(add_tag(lake, [collected], "flaky", "Ada")) == 1


def test_a_forgotten_trajectory_has_no_tag(lake: Lake) -> None:
    name = one_of(lake)
    add_tag(lake, [name], "private", "Ada", "a name on the screen")
    assert forget_trajectories(lake, [name], "private").rows["tags"] == 1
    assert lake.count("tags") == 0


def test_many_names_need_one_read_of_the_policies(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    read, rows = list[str](), Lake.rows
    monkeypatch.setattr(
        Lake, "rows", lambda self, kind, *given: [read.append(kind.__name__), *rows(self, kind, *given)][1:]
    )
    assert set(subjects_of(lake, ["policy-0001", "run", one_of(lake)]).values()) == {
        "policy_version", "run_id", "trajectory_id",
    }  # fmt: skip
    assert read.count("PolicyVersion") == 1


@pytest.mark.parametrize(
    ("act", "named"),
    [
        (lambda lake: add_tag(lake, ["nobody"], "flaky", "Ada"), "`name`"),
        (lambda lake: add_tag(lake, [], "flaky", "Ada"), "`name`"),
        (lambda lake: add_tag(lake, ["run"], "Not a tag", "Ada"), "`tag`"),
        (lambda lake: add_tag(lake, ["run"], "", "Ada"), "`tag`"),
        (lambda lake: add_tag(lake, ["run"], "flaky", "?"), "`person`"),
        (lambda lake: remove_tag(lake, ["run"], "flaky", "Ada"), "`tag`"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(
    lake: Lake, act: Callable[[Lake], object], named: str, sentence: Sentences
) -> None:
    with sentence.raises(UsageError, named):
        act(lake)
    assert not lake.count("tags")
