"""Two retrainings at once are two policies, each of its own config."""

import json
from pathlib import Path

import pytest

from schemas.config import load_config
from storage.lake import Lake
from tasks.shared.policies import policy_row
from tasks.shared.weights import checkpoint_folder
from tests.system.parts.commands import CONFIG, start, start_verb


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_two_retrainings_at_once_with_one_work_folder_are_two_policies_each_of_its_own_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "small.toml"
    config.write_text(CONFIG.format(lake=tmp_path / "lake"))
    run = start(config)
    assert run.process.wait(timeout=400) == 0, run.log.read_text()
    seeds = (11, 12)
    retrainings = [start_verb(config, "retrain", f"seed={seed}", "--json") for seed in seeds]
    assert [one.process.wait(timeout=400) for one in retrainings] == [0, 0]
    said = [one.log.read_text() for one in retrainings]
    names = [json.loads(text[text.index("{") :])["policy"] for text in said]
    assert set(names) == {"retrained-0000", "retrained-0001"}
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = Lake.open(load_config(config, [], {}).lake)
    for name, seed in zip(names, seeds, strict=True):
        row, job = policy_row(lake, name), json.loads((checkpoint_folder(lake, name) / "job.json").read_text())
        assert (row.kind, json.loads(row.config)["seed"]) == ("retrained", seed)
        assert job["seed"] == row.seed == seed * 1000 and row.status != "candidate"
