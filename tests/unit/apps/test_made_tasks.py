"""Made tasks beside given ones: their success, the funnel of their proposals, and the lineage of one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from apps.commands.lineage import lineage_of, show_lineage
from apps.commands.status import show_status, status_of
from apps.desk.app import make_app
from apps.report.build import build_report
from flywheel import OpenLake
from schemas.failure import UsageError
from schemas.table import utc_now
from storage.lake import Lake
from tasks.shared.status import iterations, success_of
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import Place, make_place

FIRST, SECOND = "fake/compose-1a", "fake/harden-2b"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A lake with two made tasks, the second of which was made from the first, and three rejected proposals."""
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    place = make_place(tmp_path)
    place.lake.append("tasks", [task(name) for name in ("fake/click-target", "fake/two-steps", FIRST, SECOND)])
    rows = [
        proposal(FIRST, "compose", ["fake/click-target", "fake/two-steps"], solver="policy-0000", tries=4, solved=2),
        proposal(SECOND, "harden", [FIRST]),
        proposal("fake/compose-3c", "compose", ["fake/two-steps"], "rejected", "golden", "the words ask for less"),
        proposal("fake/compose-4d", "compose", ["fake/two-steps"], "rejected", "known"),
        proposal("fake/compose-5e", "compose", ["fake/two-steps"], "rejected", "golden"),
        proposal("fake/harden-6f", "harden", ["fake/two-steps"], "retired"),
    ]
    place.lake.append("proposals", rows)
    (one,) = place.lake.read("evaluations", where={"policy_version": "policy-0001"}).to_pylist()[:1]
    same = one | {"suite": "synthesized", "task_id": FIRST}
    won = [same | {"seed": 1_000_000 + seed, "success": seed < 6} for seed in range(8)]
    place.lake.append("evaluations", won)
    collected = place.lake.read("trajectories", where={"iteration": 1}).to_pylist()[0]
    place.lake.append("trajectories", [collected | {"trajectory_id": "of-made", "task_id": FIRST}])
    return place


def task(name: str) -> dict[str, Any]:
    return {
        "task_id": name, "environment": "fake", "template": name.partition("/")[2], "instruction": f"Do {name}.",
        "tags": [], "split": "train", "max_steps": 4, "verifier": "state", "lineage": None,
    }  # fmt: skip


def proposal(
    name: str,
    maker: str,
    parents: list[str],
    status: str = "accepted",
    reason: str = "",
    detail: str = "",
    **tried: Any,
) -> dict[str, Any]:
    states = dict.fromkeys(("initial", "golden", "near_misses", "goals", "checks", "scores"), "{}")
    return {
        **states, "proposal_id": name, "iteration": 1, "task_id": name, "maker": maker, "maker_version": "2",
        "reward_maker": "reader-1", "environment": "fake", "world": "", "instruction": f"Do {name}.",
        "parents": parents, "solver": None, "tries": 0, "solved": 0, "status": status, "reason": reason,
        "detail": detail, "created_at": utc_now(), **tried,
    }  # fmt: skip


def test_success_on_made_tasks_is_beside_that_on_given_ones(made: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert [row.synthesized and row.synthesized.success for row in iterations(made.lake)] == [None, None, 0.75, None]
    found = success_of(made.lake, "policy-0001")
    assert found is not None and found.synthesized is not None and found.synthesized.n == 8
    assert found.n == 16  # made tasks are no part of the suite's mean
    assert status_of(made.lake)["champion_success"].synthesized.success == 0.75
    heat = OpenLake(made.lake).by_task().filter(suite="synthesized").select("task_id", "success", "n").rows()
    assert heat == [(FIRST, 0.75, 8)]
    show_status(made.lake)
    assert re.search(r"made tasks . 0\.750 \(\d\.\d\d to \d\.\d\d\)", capsys.readouterr().out)


def test_the_funnel_of_proposals_is_by_maker_and_reason(made: Place, capsys: pytest.CaptureFixture[str]) -> None:
    found = status_of(made.lake)["proposals"]
    assert found["compose"] == {
        "proposed": 4, "accepted": 1, "rejected": {"golden": 2, "known": 1}, "tried": 4, "solved": 2, "retired": 0,
    }  # fmt: skip
    assert (found["harden"]["accepted"], found["harden"]["retired"]) == (1, 1)
    show_status(made.lake)
    printed = capsys.readouterr().out
    assert "proposals of compose: 1 of 4 accepted; 2 golden, 1 known" in printed
    assert "proposals of harden: 1 of 2 accepted, 1 retired" in printed


def test_report_and_pages_show_both(made: Place) -> None:
    with TestClient(make_app(made.config, made.lake), "http://127.0.0.1:8750") as site:
        first, funnel, policy = (site.get(path).text for path in ("/", "/funnel", "/policies/policy-0001"))
        heat = json.dumps(site.get("/api/charts/wheel").json()["heat"])
    report = build_report(made.config).read_text()
    for page in (first, report):
        assert "on made tasks" in page and "0.750" in page
    for page in (funnel, report):
        assert "2 golden, 1 known" in page and "Made tasks" in page
    assert "on made tasks" in policy
    for chart in (heat, report):
        assert "compose-1a (made)" in chart and "enter-text (never trained on)" in chart


def test_lineage_of_a_task_names_its_sources_and_what_came_of_it(
    made: Place, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    found = lineage_of(made.lake, "harden-2b").as_dict
    assert found["proposal"]["maker"] == "harden" and found["instruction"] == f"Do {SECOND}."
    assert [one["task"] for one in found["ancestors"]] == [FIRST, "fake/click-target", "fake/two-steps"]
    assert found["ancestors"][0] == {
        "task": FIRST,
        "maker": "compose",
        "parents": ["fake/click-target", "fake/two-steps"],
    }
    first = lineage_of(made.lake, FIRST).as_dict
    assert first["children"] == [SECOND] and first["trajectories"] == [{"iteration": 1, "n": 1}]
    assert first["success"] == [{"policy": "policy-0001", "successes": 6, "n": 8}]
    given = lineage_of(made.lake, "click-target").as_dict
    assert given["proposal"] is None and given["ancestors"] == [] and given["children"] == [FIRST]
    assert given["policies"] == ["policy-0000", "policy-0001"]
    show_lineage(lineage_of(made.lake, FIRST))
    printed = capsys.readouterr().out
    for part in ("maker compose 2, for iteration 1", "2 of 4 succeeded, by policy-0000", f"parent of       {SECOND}"):
        assert part in printed
    show_lineage(lineage_of(made.lake, "fake/compose-3c"))
    assert "rejected: golden: the words ask for less" in capsys.readouterr().out
    with sentence.raises(UsageError, "no policy, task or trajectory `nothing`"):
        lineage_of(made.lake, "nothing")


def test_a_name_of_two_tasks_has_to_be_whole(made: Place, sentence: Sentences) -> None:
    lake: Lake = made.lake
    lake.append("tasks", [task("site/two-steps")])
    with sentence.raises(UsageError, "2 tasks are called `two-steps`"):
        lineage_of(lake, "two-steps")
