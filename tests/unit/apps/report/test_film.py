"""The moving picture of a task being learned, drawn from a lake's trajectories."""

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

import flywheel
from apps.report.film import MOST_BYTES, STEPS, film, main
from flywheel.film import END_MS, save_moving
from schemas.config.sections import LakeConfig
from schemas.failure import UsageError
from storage.lake import Lake
from tests.fixtures.sentences import Sentences
from tests.unit.storage.conftest import DEFAULTS

TASK = DEFAULTS["trajectories"]["task_id"]


def row(table: str, **changes: Any) -> dict[str, Any]:
    return {**DEFAULTS[table], **changes}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A lake of three iterations: of one step each, but one that has more than a film shows and one that has none."""
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    picture = io.BytesIO()
    Image.new("RGB", (40, 30), "blue").save(picture, "PNG")
    lake.append("screenshots", [row("screenshots", png=picture.getvalue(), width=40, height=30)])
    lengths = {(0, "explorer"): 1, (1, "policy"): STEPS + 3, (2, "policy"): 1, (2, "relay"): 1}
    for (iteration, policy), length in lengths.items():
        for number in range(2):
            name = f"{policy}-{iteration}-{number}"
            about = {"trajectory_id": name, "iteration": iteration, "policy": policy, "success": bool(number)}
            lake.append("trajectories", [row("trajectories", **about, n_steps=length)])
            places = {"trajectory_id": name, "iteration": iteration, "x": 0.5, "y": 0.5}
            lake.append("steps", [row("steps", **places, step=step) for step in range(length)])
    lake.append("trajectories", [row("trajectories", trajectory_id="a", iteration=2, policy="policy", n_steps=0)])
    return tmp_path / "lake"


def test_a_film_has_a_column_for_each_iteration_and_a_frame_for_each_step(place: Path) -> None:
    frames = film(flywheel.open(str(place)), TASK)
    assert len(frames) == STEPS + 1 and len({one.size for one in frames}) == 1
    assert frames[0].width > 3 * 150
    assert frames[0].tobytes() != frames[-1].tobytes(), "the outcome frames the last screen"


def test_a_film_is_a_gif_that_rests_at_its_end(place: Path, tmp_path: Path) -> None:
    save_moving(film(flywheel.open(str(place)), TASK), tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as made:
        made.seek(made.n_frames - 1)  # type: ignore[attr-defined]
        assert made.info["duration"] == END_MS
    assert (tmp_path / "film.gif").stat().st_size < MOST_BYTES


def test_a_task_that_was_never_played_is_refused_by_name(place: Path, sentence: Sentences) -> None:
    with sentence.raises(UsageError, "'miniwob/none'", hint="flywheel tasks"):
        film(flywheel.open(str(place)), "miniwob/none")


def test_the_command_writes_the_file_and_names_a_mistake(place: Path, tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, [str(place), "--task", TASK, "--to", str(tmp_path / "film.gif")])
    assert done.exit_code == 0 and "frames" in done.output
    wrong = CliRunner().invoke(app, [str(place), "--task", "none", "--to", str(tmp_path / "x.gif")])
    assert wrong.exit_code == 2 and not (tmp_path / "x.gif").exists()
