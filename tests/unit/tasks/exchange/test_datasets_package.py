"""`datasets` itself loads every configuration of our exports, where FLYWHEEL_DATASETS_PYTHON names a Python that has it
(`pip install datasets pillow`)."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from curation.converters.exchanged import MOST_SEED
from curation.converters.format import FORMATS
from curation.redaction import Redactor
from schemas.table import utc_now
from tasks.exchange.export import export_trajectories
from tests.tiers import lacks
from tests.unit.apps.conftest import make_place
from tests.unit.curation.converters.records import picture

PYTHON = os.environ.get("FLYWHEEL_DATASETS_PYTHON", "")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        not PYTHON, reason=lacks("no datasets in FLYWHEEL_DATASETS_PYTHON", "pip install datasets pillow")
    ),
]
LOAD = """
import json, sys
from datasets import get_dataset_config_names, load_dataset
folder, found = sys.argv[1], {}
for name in get_dataset_config_names(folder):
    for split, rows in load_dataset(folder, name).items():
        values = [value for row in rows for value in row.values()]
        cells = [cell for value in values for cell in (value if isinstance(value, list) else [value])]
        sizes = sorted({tuple(cell.size) for cell in cells if hasattr(cell, "size")})
        targets = sum(bool(row.get("target")) for row in rows)
        found[f"{name} {split}"] = {"rows": len(rows), "sizes": sizes, "targets": targets}
print(json.dumps(found))
"""


def loaded(folder: Path, home: Path) -> dict[str, Any]:
    """Rows, sizes of images and targets of each configuration and split."""
    done = subprocess.run(
        [PYTHON, "-c", LOAD, str(folder)], capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1", "HF_HOME": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_a_lake_of_several_environments_sizes_and_questions_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    place = make_place(tmp_path)
    lake, large = place.lake, picture(3, 640, 360)
    (row, *_) = lake.read("trajectories", where={"iteration": 0}).to_pylist()
    (step,) = lake.read("steps", where={"trajectory_id": row["trajectory_id"]}).to_pylist()
    shot = lake.read("screenshots").to_pylist()[0]
    lake.append("screenshots", [{**shot, "sha256": large.sha256, "png": large.png, "width": 640, "height": 360}])
    for name, seed in (("large", 5), ("measured", MOST_SEED)):
        lake.append("trajectories", [{**row, "trajectory_id": name, "seed": seed, "task_id": f"{name}/task"}])
        shown = {"screenshot": large.sha256, "next_screenshot": None, "screen_width": 640, "screen_height": 360}
        lake.append("steps", [{**step, **shown, "trajectory_id": name}])
    asked = {
        "trajectory_id": "large", "step": 0, "iteration": 0, "kind": "grounding", "author": "page", "before": None,
        "after": None, "created_at": utc_now(),
    }  # fmt: skip
    for number, name in enumerate(("Save", "Open")):
        click = '{"type":"click","x":0.5,"y":0.25}'
        lake.append("annotations", [{**asked, "annotation_id": str(number), "thought": name, "action": click}])
    count = lake.count("trajectories") - 1
    for form in (FORMATS.class_of("hf")(), FORMATS.class_of("cua-lite-hub")()):
        export_trajectories(place.config, lake, form, tmp_path / form.name, redactor=Redactor(), license="cc-by-4.0")
    found = loaded(tmp_path / "hf", tmp_path / "hub")
    assert {name: one["rows"] for name, one in found.items()} == {
        "steps train": count, "steps test": 1, "trajectories train": count, "trajectories test": 1
    }  # fmt: skip
    assert found["steps train"]["sizes"] == [[160, 210], [640, 360]] and found["steps train"]["targets"]
    assert (found["steps test"]["sizes"], found["steps test"]["targets"]) == ([[640, 360]], 0)
    rows = {name: one["rows"] for name, one in loaded(tmp_path / "cua-lite-hub", tmp_path / "hub").items()}
    assert rows == {
        "default train": count, "default validation": 1, "desktop.use train": count, "desktop.use validation": 1,
        "desktop.grounding.point train": 1,
    }  # fmt: skip
