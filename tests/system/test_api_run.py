"""`flywheel.run` of the guide, in a folder with a config of the fake environment."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.prefect_home import prefect_home
from tests.system.test_folder import CONFIG

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_guide_runs_an_iteration_and_returns_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "inspect.md").read_text()
    _, code = re.findall(r"^```python\n(import flywheel\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "flywheel.toml").write_text(CONFIG.replace("processes = 2", "processes = 1"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "work"))
    prefect_home(tmp_path / "work" / "prefect")
    names: dict[str, Any] = {}
    exec(code.replace("train.steps=100", "train.steps=4"), names)
    done = names["done"]
    assert [row.iteration for row in done.iterations] == [0] and done.iterations[0].finished
    assert done.report == tmp_path / "lake" / "report" / "index.html" and done.report.exists()
    assert done.champion in done.lake.policies().collect()["policy_version"].to_list()
    assert done.lake.by_task()["task_id"].unique().to_list() == ["fake/click-one"]
    assert "train: " in capsys.readouterr().err
