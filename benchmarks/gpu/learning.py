"""The learning benchmarks on one GPU: a model of 100 million weights or more, all tasks of the catalog.

`python -m benchmarks.gpu.learning NAME` runs `python -m benchmarks.learning NAME` with a random Qwen3-VL as the
policy's base and every task in the suite, for as many minutes as it is given. What is cut short goes on with the same
command: each arm is a lake below FLYWHEEL_HOME. Further arguments go to the benchmark. `--device cpu`: a tiny
model on the fake sandbox, to try it.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch

from benchmarks.gpu._device import NO_GPU, TINY
from benchmarks.learning.__main__ import NAMES
from environments.registry import environments_of
from models.random_vlm import build_random
from schemas.config import load_config
from schemas.config.policy import PolicyConfig
from schemas.config.training import TrainConfig
from schemas.tables.task import TaskEntry

SIZES: dict[str, dict[str, int]] = {
    "cuda": {
        "hidden": 1024, "layers": 12, "heads": 16, "kv_heads": 8, "head_width": 64,
        "vision_hidden": 512, "vision_layers": 12,
    },
    "cpu": TINY,
}  # fmt: skip
"""Random Qwen3-VL models: above 100 million weights for a GPU, a tiny one to try the program on a CPU."""
FAKE = ("click-target", "two-steps")
STOPPING_S = 60
"""How long a benchmark that is asked to stop may take, before it is killed; nothing finished is lost either way."""


def base_of(device: str) -> Path:
    """The random model that all runs on a device begin from; made once."""
    home = Path(os.environ.get("FLYWHEEL_HOME", ".flywheel")).absolute()
    folder = home / "benchmarks" / "learning" / f"base-{device}"
    if not (folder / "chat_template.jinja").exists():  # the last file that is written
        texts = [entry.instruction for _, entry in sorted(_entries("configs/miniwob.toml").items())]
        build_random("qwen3_vl", texts, 0, folder, **SIZES[device])
    return folder


def overrides_for(device: str, config: str) -> list[str]:
    """What differs from the benchmark on two cores: the policy, the suite, and training that suits the model."""
    suite = load_config(config, []).suite
    tasks = [name for name in sorted(_entries(config)) if name not in (*suite.held_out, *suite.practice)]
    model = [f"policy.base={base_of(device)}", "train.learning_rate=1e-4"]
    if device == "cuda":
        return [*model, f"suite.tasks={json.dumps(tasks)}", "train.processes=1", "train.token_cap=16384"]
    small = ["train.steps=1", "train.batch=2", "collect.trajectories_per_task=4"]
    small.append(f"train.steps_first={TrainConfig().steps_first}")  # the short setting's is for the small policy alone
    small += [f"policy.{key}={getattr(PolicyConfig(), key)}" for key in ("hidden", "vision_hidden")]  # likewise
    groups = ["train.group.groups=1", "train.group.size=2", "train.group.k=1", "evaluate.seeds=1"]
    return [*model, *small, *groups, f"suite.tasks={json.dumps(FAKE)}", "policy.max_new_tokens=4"]


def _entries(config: str) -> Mapping[str, TaskEntry]:
    """Every task of the config's first environment."""
    return environments_of(load_config(config, []))[0].entries


def timed(command: list[str], minutes: float) -> int | None:
    """A command's exit code; None if it was stopped when the time was over."""
    running = subprocess.Popen(command, start_new_session=True)
    try:
        return running.wait(60 * minutes)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(running)


def _end(running: subprocess.Popen[bytes]) -> None:
    """Ends it and all that it started; by a termination, as what was started in the background ignores interrupts."""
    if running.poll() is None:
        os.killpg(running.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            running.wait(STOPPING_S)
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def main() -> int:
    """Runs one benchmark for a while; its exit code, or 0 after a plain line where it was cut short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(NAMES))
    parser.add_argument("--device", choices=tuple(SIZES), default="cuda", help="cpu: a tiny setting, to try it")
    parser.add_argument("--minutes", type=float, default=10.0, help="then it stops; the same command goes on")
    parser.add_argument("--config", default="configs/miniwob.toml")
    options, more = parser.parse_known_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print(NO_GPU)
        return 0
    short = ["--short"] if options.device == "cpu" else []
    overrides = overrides_for(options.device, options.config)
    started = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.learning", options.name, *overrides, *more, "--config", options.config]
    code = timed([*command, *short], options.minutes)
    if code is None:
        minutes = (time.perf_counter() - started) / 60
        print(f"stopped after {minutes:.1f} minutes; the same command goes on from what is finished.")
        return 0
    return code


if __name__ == "__main__":
    raise SystemExit(main())
