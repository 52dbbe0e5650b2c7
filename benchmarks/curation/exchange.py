"""What an import holds in memory: the same command over a data set and over one twice as large.

`python -m benchmarks.curation.exchange [--short] --json PATH`

AgentNet lines are made up, ten steps a trajectory, over screens of 320 x 240 that trajectories share; `flywheel data
import` brings them into an empty lake, in a process of its own, checked, written, gated, thought about and annotated.
Memory is that of the command and all that it starts (Prefect's temporary server), sampled (`benchmarks.shared.memory`).
It may grow with the number of steps (rows that DuckDB sorts before it goes to disk, keys, decisions), and not
by their pictures.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from benchmarks.shared.memory import PeakMemory, folder_bytes
from benchmarks.shared.report import Bar, finish, options
from schemas.config.sections import LakeConfig
from storage.lake import Lake

STEPS = {False: 20_000, True: 1_000}
"""Of the smaller data set of a full and of a short run."""
EACH, SCREENS, SIDES = 10, 400, (320, 240)
"""Steps of a trajectory, pictures that all share, and their pixels."""
MOST_STEP_KB = 12.0
"""By so much memory may grow with each step more."""


def make(folder: Path, steps: int) -> Path:
    """A data set of so many steps."""
    chance = random.Random(0)
    folder.mkdir()
    for number in range(SCREENS):
        _screen(chance).save(folder / f"{number}.png", compress_level=1)
    with (folder / "theirs.jsonl").open("w") as lines:
        lines.writelines(json.dumps(_line(number, chance)) + "\n" for number in range(steps // EACH))
    return folder


def _screen(chance: random.Random) -> Image.Image:
    image = Image.new("RGB", SIDES, (chance.randrange(256), 90, 200))
    pen = ImageDraw.Draw(image)
    for _ in range(60):
        x, y = chance.randrange(SIDES[0]), chance.randrange(SIDES[1])
        shade = (chance.randrange(256), chance.randrange(256), chance.randrange(256))
        pen.rectangle((x, y, x + chance.randrange(5, 60), y + chance.randrange(5, 30)), fill=shade)
    return image


def _line(number: int, chance: random.Random) -> dict[str, Any]:
    traj = [_entry(at, f"pyautogui.click(x={chance.random():.4f}, y={chance.random():.4f})", chance) for at in range(9)]
    traj.append(_entry(9, "computer.terminate(status='success')", chance))
    done = number % 3 > 0
    return {"task_id": f"t{number}", "instruction": f"Open window {number}.", "traj": traj, "task_completed": done}


def _entry(at: int, code: str, chance: random.Random) -> dict[str, Any]:
    thought = " ".join(f"{chance.getrandbits(30):x}" for _ in range(40))
    observation = " ".join(f"{chance.getrandbits(30):x}" for _ in range(100))
    value = {"observation": observation, "thought": thought, "code": code, "last_step_correct": True}
    return {"index": at, "image": f"{chance.randrange(SCREENS)}.png", "value": value}


def measure(folder: Path, steps: int) -> dict[str, Any]:
    """An import into an empty lake."""
    data, uri = make(folder / f"data-{steps}", steps), folder / f"lake-{steps}"
    command = [sys.executable, "-m", "apps.cli", "data", "import", str(data), "--format", "agentnet", "--json",
               f"lake.uri={uri}"]  # fmt: skip
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, PeakMemory(process.pid, 0.1) as watched:
        printed, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{command}: exit status {process.returncode}")
    done = json.loads(printed)
    return {
        "steps": done["steps"],
        "trajectories": done["trajectories"],
        "stored": Lake.open(LakeConfig(uri=str(uri))).count("steps"),
        "data_mib": folder_bytes(data) / 2**20,
        "wall_s": time.perf_counter() - began,
        "gib": watched.peak.gib,
        "programs_mib": {name: size / 2**20 for name, size in watched.peak.programs.items()},
    }


def main() -> int:
    """Measures both sizes."""
    chosen = options(__doc__ or "")
    size = STEPS[chosen.short]
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(Path(folder), steps) for steps in (size, 2 * size)]
    once, twice = rows
    more = 2**20 * (twice["gib"] - once["gib"]) / (twice["steps"] - once["steps"])
    bars = [
        Bar("kB of memory for a step more", more, MOST_STEP_KB, "lower"),
        Bar("steps that are not in the lake", once["steps"] + twice["steps"] - once["stored"] - twice["stored"], 0,
            "lower"),
    ]  # fmt: skip
    return finish("exchange", rows, bars, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
