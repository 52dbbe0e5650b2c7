"""Finding trajectories by their outcome, the decision about them and any of their texts."""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flywheel.lake import OpenLake
from schemas.action import Type, UseTool, to_json
from schemas.config.sections import LakeConfig
from schemas.failure import UsageError
from schemas.tables.evaluation_trajectory import EvaluationTrajectory
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.shared.finding import ORDERS, Wanted, find, found_of, matching, refuse_unknown
from tests.fixtures.sentences import Sentences
from tests.unit.storage.conftest import DEFAULTS, NOON


def row(table: str, **changes: Any) -> dict[str, Any]:
    return {**DEFAULTS[table], **changes}


@pytest.fixture
def filled(tmp_path: Path) -> Lake:
    """Trajectories: a success, a failure that a gate rejected, a dead sandbox, and an import without an outcome."""
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    failed = {"success": False, "reward": -1.0, "policy": "explorer", "policy_version": "explorer-1"}
    dead = {"success": None, "reward": None, "failure_boundary": "sandbox", "failure_reason": "Chromium died"}
    kinds: dict[str, dict[str, Any]] = {
        "won": {"instruction": "Click 100% of the boxes."},
        "lost": {**failed, "n_steps": 3, "task_id": "fake/b"},
        "dead": {**dead, "iteration": 2},
        "told": {"success": None, "reward": None, "policy": "import", "iteration": -2},
    }
    for number, (name, changes) in enumerate(kinds.items()):
        at = {"trajectory_id": name, "iteration": changes.get("iteration", 1)}
        lake.append("trajectories", [row("trajectories", **{"started_at": NOON + timedelta(number), **changes, **at})])
        actions = [f'{{"content":"Ada {name}","type":"type"}}']
        lake.append(
            "steps", [row("steps", **at, thought=f"I see a_b {name}.", actions=actions, next_screenshot="b" * 64)]
        )
    lake.append("verdicts", [row("verdicts", trajectory_id="won", reason="verifier: reward is 1")])
    verdict = {"trajectory_id": "lost", "passed": False, "route": "ct", "reason": "repeats: the same click five times"}
    lake.append("verdicts", [row("verdicts", **verdict), row("verdicts", **verdict, gate="repeats")])
    return lake


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Wanted(), ["told", "dead", "lost", "won"]),
        (Wanted(task="b"), ["lost"]),
        (Wanted(task="miniwob/a"), ["told", "dead", "won"]),
        (Wanted(outcome="success"), ["won"]),
        (Wanted(outcome="failure"), ["lost"]),
        (Wanted(outcome="environment"), ["dead"]),
        (Wanted(outcome="unknown"), ["told"]),
        (Wanted(policy="explorer"), ["lost"]),
        (Wanted(policy="p1"), ["told", "dead", "won"]),
        (Wanted(iteration=-2), ["told"]),
        (Wanted(route="ct"), ["lost"]),
        (Wanted(route="ct", iteration=2), []),
        (Wanted(gate="repeats"), ["lost"]),
        (Wanted(text="100% OF"), ["won"]),
        (Wanted(text="0% of the %"), []),
        (Wanted(text="a_b won"), ["won"]),
        (Wanted(text="aXb"), []),
        (Wanted(text="ada lost"), ["lost"]),
        (Wanted(text="five times"), ["lost"]),
        (Wanted(text="chromium"), ["dead"]),
        (Wanted(outcome="success", text="five times"), []),
    ],
)
def test_every_condition_has_to_hold(filled: Lake, wanted: Wanted, names: list[str]) -> None:
    found = find(filled, wanted)
    assert [one.row.trajectory_id for one in found] == names and found.total == len(names)


@pytest.mark.parametrize(
    ("order", "first"), [("newest", "told"), ("oldest", "won"), ("reward", "won"), ("steps", "lost")]
)
def test_trajectories_are_sorted(filled: Lake, order: str, first: str) -> None:
    assert find(filled, Wanted(), order=order).rows[0].row.trajectory_id == first


@pytest.mark.parametrize("order", ORDERS)
def test_pages_follow_each_other_while_trajectories_are_added(filled: Lake, order: str) -> None:
    every = matching(filled, Wanted(), order=order).ids
    first = find(filled, Wanted(), 2, order)
    assert (first.before, first.after, first.total) == (None, every[1], 4)
    early = {"started_at": NOON - timedelta(1), "wall_s": 0.0, "reward": -2.0, "n_steps": 0}
    late = {"started_at": NOON + timedelta(9), "wall_s": 9.0, "reward": 2.0, "n_steps": 9}
    for name, changes in {"early": early, "late": late}.items():
        filled.append("trajectories", [row("trajectories", trajectory_id=name, iteration=1, **changes)])
    second = find(filled, Wanted(), 9, order, after=first.after)
    assert [name for name in second.matching.ids if name not in {"early", "late"}] == every[2:] and second.total == 6
    assert second.before and second.after is None and second.matching.ahead == 6 - len(second.rows)
    assert matching(filled, Wanted(), 1, order, before=every[1]).ids == every[:1]
    assert find(filled, Wanted(outcome="success"), order=order, before=every[-1]).matching.ahead == 0


def test_a_page_is_placed_by_a_trajectory_that_does_not_match(filled: Lake) -> None:
    behind = find(filled, Wanted(outcome="success"), after="lost")
    assert (behind.matching.ids, behind.before, behind.after) == (["won"], None, None)
    empty = find(filled, Wanted(), after="won")
    assert (empty.rows, empty.total, empty.after, empty.matching.ahead) == ([], 4, None, 4)


def test_members_differ_for_other_trajectories_of_the_same_number(filled: Lake) -> None:
    won, lost = (matching(filled, Wanted(outcome=outcome)) for outcome in ("success", "failure"))
    assert won.total == lost.total == 1 and won.members != lost.members
    orders = {matching(filled, Wanted(), 1, order).members for order in ORDERS}
    assert len(orders) == 1 and orders != {won.members}


@pytest.mark.parametrize("evaluations", [False, True])
def test_champion_is_the_name_of_the_current_champion(tmp_path: Path, evaluations: bool) -> None:
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    lake.append("policies", [row("policies", policy_version="p1", status="champion")])
    table = "evaluation_trajectories" if evaluations else "trajectories"
    for name, version in (("own", "p1"), ("other", "p2")):
        given = row("trajectories", trajectory_id=name, policy_version=version, policy="policy", suite="s")
        known = (EvaluationTrajectory if evaluations else Trajectory).model_fields
        lake.append(table, [{column: value for column, value in given.items() if column in known}])
    found = OpenLake(lake).find(policy="champion", evaluations=evaluations)
    assert [one.trajectory_id for one in found] == ["own"]
    assert OpenLake(lake).find(policy="champion", text="nothing", evaluations=evaluations) == []
    if evaluations:
        with pytest.raises(UsageError) as refused:
            refuse_unknown(lake, Wanted(policy="champion"))
        assert refused.value.hint == "Evaluations kept 1 trajectory of it: add `--evaluations`."


def test_the_limits_of_numbers_are_found(filled: Lake) -> None:
    for number in (-(2**63), 2**63 - 1):
        assert find(filled, Wanted(seed=number), limit=2**63 - 1).rows == []
    for number in (-(2**31), 2**31 - 1):
        assert find(filled, Wanted(iteration=number)).rows == []


def test_a_found_trajectory_has_its_decision_and_its_last_screen(filled: Lake) -> None:
    lost = found_of(filled, "lost")
    assert (lost.outcome, lost.route, lost.reason) == ("failure", "ct", "repeats: the same click five times")
    assert lost.screenshot == "b" * 64
    assert found_of(filled, "dead").route is None


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda lake: find(lake, Wanted(outcome="won")), "outcome"),
        (lambda lake: find(lake, Wanted(route="nowhere")), "route"),
        (lambda lake: find(lake, Wanted(), order="colour"), "sort"),
        (lambda lake: found_of(lake, "nobody"), "trajectory_id"),
        (lambda lake: find(lake, Wanted(text="\udcff")), "text"),
        (lambda lake: find(lake, Wanted(task="\udcff")), "task"),
        (lambda lake: find(lake, Wanted(seed=2**70)), "seed"),
        (lambda lake: find(lake, Wanted(iteration=2**40)), "iteration"),
        (lambda lake: find(lake, Wanted(), limit=-1), "limit"),
        (lambda lake: find(lake, Wanted(text="a" * 50_001)), "text"),
        (lambda lake: find(lake, Wanted(), after="nobody"), "after"),
        (lambda lake: OpenLake(lake).find(after="nobody"), "after"),
        (lambda lake: find(lake, Wanted(evaluations=True), before="won"), "before"),
        (lambda lake: find(lake, Wanted(), after="won", before="won"), "after`, `before"),
        (lambda lake: OpenLake(lake).find(limit=2**70), "limit"),
        (lambda lake: OpenLake(lake).find(policy="nobody"), "policy"),
    ],
)
def test_what_does_not_exist_is_refused_by_name(
    filled: Lake, make: Callable[[Lake], object], named: str, sentence: Sentences
) -> None:
    with sentence.raises(UsageError, f"`{named}`"):
        make(filled)


TYPED = 'J\u00fcrgen M\u00fcller says "hi" in C:\\tmp\nand a (b)* c'


@pytest.mark.parametrize(
    "text",
    [
        "M\u00fcller", "m\u00dcller says", '"HI"', "C:\\tmp", "tmp\nand", "(b)*", TYPED,
        "log_in", "\u0416\u0443\u043a", "deep",
    ],
)  # fmt: skip
def test_a_text_in_an_action_is_found_as_it_was_typed(filled: Lake, text: str) -> None:
    call = UseTool(name="log_in", arguments={"of": ["\u0436\u0443\u043a", {"at": "deep"}]})
    actions = [to_json(Type(content=TYPED)), to_json(call)]
    filled.append("steps", [row("steps", trajectory_id="won", iteration=1, step=1, thought="", actions=actions)])
    assert [one.row.trajectory_id for one in find(filled, Wanted(text=text)).rows] == ["won"]
    assert find(filled, Wanted(text=text, iteration=2)).total == 0


@pytest.mark.parametrize("text", ["content", "u00fc", "\\n", "arguments", "M.ller", "(b|c)"])
def test_notation_of_actions_is_no_text_of_them(filled: Lake, text: str) -> None:
    filled.append(
        "steps", [row("steps", trajectory_id="won", iteration=1, step=1, actions=[to_json(Type(content=TYPED))])]
    )
    assert find(filled, Wanted(text=text)).total == 0


def test_python_finds_nothing_where_a_lake_keeps_no_evaluation(filled: Lake) -> None:
    assert OpenLake(filled).find(policy="champion", evaluations=True) == []


LETTERS = st.sampled_from(
    "aAbBsS\u017fkK\u212a\u00df\u1e9e\u03c3\u03c2\u03a3\u0130i\u01311 .%_\\\"'/\n\t\0[](){}:,\u00e9\u0416\U0001f600"
)
STRINGS = st.text(LETTERS, max_size=5)
ARGUMENTS = st.recursive(STRINGS | st.integers(-9, 99) | st.none(), lambda inner: st.lists(inner, max_size=2))
ACTIONS = st.builds(lambda text: to_json(Type(content=text)), STRINGS) | st.builds(
    lambda given: to_json(UseTool(name="log_in", arguments={"of": given})), ARGUMENTS
)
TEXT_ROWS = st.lists(
    st.tuples(STRINGS, STRINGS | st.none(), STRINGS, STRINGS | st.none(), st.lists(ACTIONS, max_size=2), STRINGS),
    min_size=1,
    max_size=4,
)
MEANING = """
    SELECT instruction AS text FROM trajectories WHERE trajectory_id = $name
    UNION ALL SELECT failure_reason FROM trajectories WHERE trajectory_id = $name
    UNION ALL SELECT thought FROM steps WHERE trajectory_id = $name
    UNION ALL SELECT action_error FROM steps WHERE trajectory_id = $name
    UNION ALL SELECT reason FROM verdicts WHERE trajectory_id = $name
    UNION ALL SELECT array_to_string(json_extract_string(action, '$..*'), chr(31))
    FROM (SELECT unnest(actions) AS action FROM steps WHERE trajectory_id = $name)"""
"""The texts of a trajectory, each of which is searched on its own."""


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_text_is_found_wherever_a_trajectory_holds_it_in_any_case(tmp_path_factory: Any, data: st.DataObject) -> None:
    lake = Lake.open(LakeConfig(uri=str(tmp_path_factory.mktemp("texts") / "lake")))
    for number, texts in enumerate(data.draw(TEXT_ROWS)):
        instruction, failed, thought, error, actions, reason = texts
        at = {"trajectory_id": str(number), "iteration": number % 2}
        lake.append("trajectories", [row("trajectories", **at, instruction=instruction, failure_reason=failed)])
        lake.append("steps", [row("steps", **at, thought=thought, action_error=error, actions=actions)])
        lake.append("verdicts", [row("verdicts", **at, reason=reason)])
        for text in data.draw(st.lists(st.text(LETTERS, min_size=1, max_size=3), min_size=1, max_size=6)):
            pattern, expected = re.escape(text), set[str]()
            with lake.connect(["trajectories", "steps", "verdicts"]) as connection:
                for one in range(number + 1):
                    held = f"SELECT bool_or(regexp_matches(text, $pattern, 'i')) FROM ({MEANING})"
                    if connection.execute(held, {"name": str(one), "pattern": pattern}).fetchall() == [(True,)]:
                        expected.add(str(one))
            assert set(matching(lake, Wanted(text=text)).ids) == expected
            even = matching(lake, Wanted(text=text, iteration=0)).ids
            assert set(even) == {name for name in expected if int(name) % 2 == 0}


def test_a_changed_or_removed_text_is_no_longer_found(filled: Lake) -> None:
    assert matching(filled, Wanted(text="ada won")).ids == ["won"]
    filled.upsert("steps", [row("steps", trajectory_id="won", iteration=1, thought="", actions=[])])
    assert matching(filled, Wanted(text="ada won")).ids == []
    assert matching(filled, Wanted(text="ada lost")).ids == ["lost"]
    filled.delete("verdicts", "reason LIKE '%five times'")
    filled.compact("steps")
    assert matching(filled, Wanted(text="five times")).ids == []
    assert matching(filled, Wanted(text="ada lost")).ids == ["lost"]
