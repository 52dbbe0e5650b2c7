"""`flywheel data import` that is killed in the middle: the same command goes on, and nothing is there twice."""

import io
import json
import os
import random
import time
from pathlib import Path

import pytest
from PIL import Image

from schemas.config import load_config
from schemas.tables import TABLES
from storage.lake import Lake
from tests.system.parts.commands import CONFIG, Command, start_verb

RECORDS = 300


def data_set(folder: Path) -> Path:
    """So many records of two steps with AgentNet's columns, each with pictures of its own."""
    folder.mkdir()
    chance = random.Random(0)
    with (folder / "theirs.jsonl").open("w") as out:
        for number in range(RECORDS):
            traj = []
            codes = [f"pyautogui.click(x={chance.random():.3f}, y=0.25)", "computer.terminate(status='success')"]
            for at, code in enumerate(codes):
                png = io.BytesIO()
                Image.frombytes("L", (64, 48), chance.randbytes(64 * 48)).save(png, "PNG")
                (folder / f"{number}-{at}.png").write_bytes(png.getvalue())
                traj.append({"index": at, "image": f"{number}-{at}.png", "value": {"code": code, "thought": "Go."}})
            task = {"task_id": f"theirs-{number}", "instruction": f"Open window {number}.", "task_completed": True}
            out.write(json.dumps(task | {"traj": traj}) + "\n")
    return folder / "theirs.jsonl"


def there(config: Path) -> int:
    """Trajectories in the lake."""
    if not (config.parent / "lake" / "flywheel.json").exists():
        return 0
    return Lake.open(load_config(str(config), [], {}).lake).count("trajectories")


def killed(run: Command) -> None:
    """Kill -9 of all of its processes."""
    for one in run.tree():
        one.kill()
    run.process.wait(timeout=30)
    os.sync()


@pytest.mark.nightly
def test_an_import_that_is_killed_goes_on_with_the_same_command_and_holds_everything_once(tmp_path: Path) -> None:
    file, config = data_set(tmp_path / "theirs"), tmp_path / "small.toml"
    config.write_text(CONFIG.format(lake=tmp_path / "lake"))
    words = ("data", "import", str(file), "--format", "agentnet")
    run = start_verb(config, *words)
    while not there(config):
        assert run.process.poll() is None, run.log.read_text()[-2000:]
        time.sleep(0.02)
    killed(run)
    half = there(config)
    assert 0 < half < RECORDS
    again = start_verb(config, *words)
    assert again.process.wait(timeout=200) == 0, again.log.read_text()[-3000:]
    lake = Lake.open(load_config(str(config), [], {}).lake)
    assert (lake.count("trajectories"), lake.count("steps")) == (RECORDS, 2 * RECORDS)
    assert lake.count("screenshots") == 2 * RECORDS
    assert set(lake.read("trajectories", ["iteration"])["iteration"].to_pylist()) == {-2}
    assert lake.count("verdicts", {"gate": "route"}) == RECORDS
    for table in TABLES.values():
        rows = lake.read(table.name, list(table.key)).to_pylist()
        assert len({tuple(row.values()) for row in rows}) == len(rows), table.name
