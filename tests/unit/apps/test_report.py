"""The page: whole, self-contained, bounded, and safe against what trajectories say."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest

from apps.report import charts
from apps.report.build import build_report, vega
from apps.report.replays import choose, replays
from schemas.action import in_words
from schemas.config import config_of
from schemas.tables.stage import STAGES, StageName
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tests.unit.apps.conftest import make_place


@pytest.fixture(scope="module")
def page(place: Any) -> Path:
    return build_report(place.config)


@pytest.fixture(scope="module")
def text(page: Path) -> str:
    return page.read_text()


def test_the_page_lies_in_the_lake_s_folder(page: Path, place: Any) -> None:
    assert page == Path(place.lake.uri) / "report" / "index.html"
    assert [path.name for path in page.parent.iterdir()] == ["index.html"]


def test_the_page_loads_nothing_from_anywhere(text: str) -> None:
    own = text.replace(vega(), "")
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?:https?:)?//""", own)
    assert not re.findall(r"url\(|@import|fetch\(|import\(", own)
    assert "default-src 'none'" in own
    assert "https://" not in re.sub(r'"\$schema": "[^"]*"', "", own)


def test_the_page_stays_below_five_megabytes(page: Path) -> None:
    assert page.stat().st_size < 5_000_000


def test_the_page_shows_every_part(text: str) -> None:
    for name in ("success", "collected", "heat", "funnel", "weights", "stages", "training"):
        assert f'id="chart-{name}"' in text
    between, worked = 2 * len(STAGES) * 0.25, 2 * len(STAGES) * 2.0 + 2.0
    assert f"{100 * between / (between + worked):.1f} % of an iteration" in text
    for said in (
        "policy-0001",
        "learnable: half of two-steps succeeds",
        "a trajectory of many minutes",
        "the box died",
        "<figcaption>step 0: ",
    ):
        assert said in text
    assert "data:image/png;base64," in text
    assert '<circle cx="80.0" cy="52.5"' in text
    assert "&#34;name&#34;: &#34;synthetic&#34;" in text


def test_every_stage_has_a_colour_of_its_own() -> None:
    names = get_args(StageName)
    rows = [{"iteration": 0, "stage": name, "seconds": 1.0, "order": place} for place, name in enumerate(names)]
    spec = charts.stages(pl.DataFrame(rows))
    assert spec is not None
    scale = spec["encoding"]["color"]["scale"]
    assert scale["domain"] == list(names) and len(set(scale["range"])) == len(names) == len(STAGES) + 3


def test_what_a_trajectory_says_is_text_and_never_markup(text: str) -> None:
    own = text.replace(vega(), "")
    assert "&lt;i&gt;there&lt;/i&gt;" in own and "<i>there</i>" not in own
    assert "&lt;b&gt;click-target&lt;/b&gt;" in own


def test_the_inlined_library_cannot_end_its_script(text: str) -> None:
    assert "</script" not in vega()
    assert text.count("</script>") == 3


def test_an_empty_lake_has_a_page_too(tmp_path: Path) -> None:
    config = config_of({"lake": {"uri": str(tmp_path / "lake")}, "suite": {"tasks": ["click-target"]}})
    Lake.open(config.lake)
    said = build_report(config).read_text()
    assert "No trajectories have been rolled out yet." in said and 'id="chart-success"' not in said


def test_replays_show_failures_and_successes_of_different_tasks(place: Any) -> None:
    shown = replays(place.lake)
    outcomes = [trajectory.outcome for trajectory in shown]
    assert outcomes == ["failure"] * 2 + ["environment"] * 2 + ["success"] * 4
    assert {trajectory.task for trajectory in shown} == {"click-target", "two-steps"}
    assert all(trajectory.row.policy == "policy" and trajectory.row.iteration == 2 for trajectory in shown)


def test_the_explorer_is_shown_where_nobody_else_acted() -> None:
    rows = [Trajectory.model_construct(policy="explorer", success=True, trajectory_id="a", task_id="t")]
    assert choose(rows) == rows


def test_the_explorer_s_successes_stand_in_where_the_policy_has_none() -> None:
    failed = Trajectory.model_construct(policy="policy", success=False, trajectory_id="a", task_id="t")
    solved = Trajectory.model_construct(policy="explorer", success=True, trajectory_id="b", task_id="t")
    assert choose([solved, failed]) == [failed, solved]


def test_actions_are_described_for_people() -> None:
    assert in_words('{"type":"left_double","x":0.5,"y":0.25}') == "left double (0.500, 0.250)"
    assert in_words('{"to_x":1,"to_y":0,"type":"drag","x":0.5,"y":0.25}') == "drag (0.500, 0.250) to (1.000, 0.000)"
    assert in_words('{"content":"hi","type":"type"}') == 'type "hi"'
    assert in_words('{"type":"wait"}') == "wait"
    assert in_words(None) == "no action"


def test_what_is_wider_than_a_phone_scrolls_in_its_own_box(page: Path) -> None:
    text = page.read_text().partition("<script>")[0]
    assert text.count("<table>") == text.count('<div class="scroll"><table>') == 5
    assert ".scroll { overflow-x: auto; }" in text and re.search(r"\.chart {[^}]*overflow-x: auto", text)


def test_a_report_shows_no_secret_in_words_or_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = make_place(tmp_path).lake
    before = replays(lake)
    name = before[0].row.trajectory_id
    (row,) = lake.read("trajectories", where={"trajectory_id": name}).to_pylist()
    lake.upsert("trajectories", [{**row, "instruction": "Write to ada@example.org"}])
    (step,) = lake.read("steps", where={"trajectory_id": name}).to_pylist()
    seen = json.dumps([["ada@example.org", "text", [0.1, 0.1, 0.9, 0.2], 0, ""]])
    action = json.dumps({"type": "type", "content": "ada@example.org"})
    words = {
        "thought": "to ada@example.org",
        "raw_text": "ada@example.org",
        "actions": [action],
        "elements": seen,
    }
    lake.upsert("steps", [{**step, **words}])
    (after,) = [one for one in replays(lake) if one.row.trajectory_id == name]
    assert "ada@" not in repr(after) and after.row.instruction == "Write to [redacted e-mail]"
    assert after.steps[0].action == 'type "[redacted e-mail]"'
    assert after.steps[0].picture != before[0].steps[0].picture
