"""What an import's own reflector calls wrong or redundant is seen by what follows it, and imitated by nobody."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from curation.converters.agentnet import AgentNet
from schemas.config import Config, config_of
from storage.lake import Lake
from tasks.exchange.export import export_trajectories
from tasks.exchange.importing import Request, _import_records  # pyright: ignore[reportPrivateUsage]
from tasks.filter import decide
from tasks.running.run import Run
from tasks.train.supervised import weighed_targets

LOOKED: tuple[tuple[bool | None, bool | None], ...] = ((True, False), (False, False), (True, True), (None, None))
"""Of each step, whether it is correct and whether it is redundant."""


def run_in(folder: Path) -> Run:
    config = config_of(
        {
            "lake": {"uri": str(folder), "min_free_mb": 1},
            "environments": {"fake": {}},
            "suite": {"tasks": ["click-target"]},
            "filter": {"gates": ["environment", "verifier"]},
        }
    )
    return Run(config, Lake.open(config.lake), "run")


def import_of(run: Run, folder: Path) -> list[dict[str, Any]]:
    """Imports a folder; its steps as a training weighs them."""
    _import_records(run, -2, Request(format="agentnet", path=folder), "import:agentnet:0123456789abcdef")
    decide(run.config, run.lake, -2)
    return weighed(run.config, run.lake)


def weighed(config: Config, lake: Lake) -> list[dict[str, Any]]:
    return [one for one in weighed_targets(config, lake).to_pylist() if not one["grounding"]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    made = tmp_path / "theirs"
    made.mkdir()
    traj = list[dict[str, Any]]()
    for number, (correct, redundant) in enumerate(LOOKED):
        buffer = io.BytesIO()
        Image.new("RGB", (64, 48), (50 * number, 90, 200)).save(buffer, "PNG")
        (made / f"{number}.png").write_bytes(buffer.getvalue())
        looked = {"last_step_correct": correct, "last_step_redundant": redundant, "reflection": "I looked."}
        value = {"code": f"pyautogui.click(x=0.{number + 1}, y=0.5)", **(looked if correct is not None else {})}
        traj.append({"index": number, "image": f"{number}.png", "value": value})
    line = {"task_id": "theirs", "instruction": "Click through.", "traj": traj, "task_completed": True}
    (made / "theirs.jsonl").write_text(json.dumps(line) + "\n")
    return made


def test_steps_that_their_record_calls_wrong_or_redundant_are_context_and_the_rest_is_imitated(
    folder: Path, tmp_path: Path
) -> None:
    rows = import_of(run_in(tmp_path / "lake"), folder)
    assert [(one["step"], one["place"], one["weight"]) for one in rows] == [
        (0, 0, 0.5), (1, 1, None), (2, 2, None), (3, 3, 0.5)
    ]  # fmt: skip


@pytest.mark.slow
def test_what_a_lake_taught_is_taught_where_it_is_imported_whatever_rules_found_of_it(
    folder: Path, tmp_path: Path
) -> None:
    """Rules call many a step redundant that training imitates; an export writes that down in the same fields."""
    run = run_in(tmp_path / "lake")
    import_of(run, folder)
    found = run.lake.read("reflections", where={"step": 0}).to_pylist()
    by_rules = {"author": "rules", "version": "9", "last_step_redundant": True}
    run.lake.append("reflections", [{**found[0], **by_rules, "created_at": found[0]["created_at"].replace(year=2099)}])
    export_trajectories(run.config, run.lake, AgentNet(), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "agentnet.jsonl").read_text())["traj"][0]["value"]["last_step_redundant"]
    rows = import_of(run_in(tmp_path / "other"), tmp_path / "out")
    assert [one["step"] for one in rows if one["weight"]] == [0, 3]


def test_an_import_of_which_every_step_is_wrong_takes_no_share_of_a_training(folder: Path, tmp_path: Path) -> None:
    run = run_in(tmp_path / "lake")
    import_of(run, folder)
    file = folder / "theirs.jsonl"
    line = json.loads(file.read_text())
    for entry in line["traj"]:
        entry["value"]["last_step_correct"] = False
    file.write_text(json.dumps({**line, "instruction": "Click wrongly."}) + "\n")
    _import_records(run, -3, Request(format="agentnet", path=folder), "import:agentnet:fedcba9876543210")
    decide(run.config, run.lake, -3)
    assert sum(one["weight"] or 0 for one in weighed(run.config, run.lake)) == pytest.approx(1.0)
