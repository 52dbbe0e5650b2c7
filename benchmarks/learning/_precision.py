"""Compare full precision with dynamic int8: greedy success on the same seeds, processor time of an answer.

Time is that of one thread, the two in turn over the same screens. The small policy gains nothing, since its matrices
are 200 wide. int8 is for larger models, so a wider random one is timed too; its answers are not measured.
"""

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.arms import Arm
from benchmarks.learning._start import champion_of, lake_of
from benchmarks.paired import Key
from models.policy import Context, Policy
from models.random_vlm import build_random
from models.vlm import VlmPolicy
from schemas.config import load_config
from schemas.config.policy import PolicyConfig
from schemas.observation import Observation
from tasks.shared.weights import checkpoint_folder

PRECISIONS = ("full", "int8")
REPEATS = 7
SCREENS = 16


def greedy(start: Arm, precision: str, tasks: Sequence[str], seeds: int) -> dict[Key, bool]:
    """The champion's greedy trajectories in a precision, environment failures left out."""
    folder = start.folder / precision
    folder.mkdir(parents=True, exist_ok=True)
    arm = Arm(precision, start.seed, start.config, folder, (*start.overrides, f"policy.precision={precision}"))
    trajectories = arm.measure(champion_of(start), tasks, seeds)["plays"]
    return {(start.seed, task, seed): success for task, seed, success, *_ in trajectories if success is not None}


def milliseconds(start: Arm, width: int) -> dict[str, dict[str, float]]:
    """Processor time of an answer by model and precision: the champion, and a random Qwen3-VL of this width."""
    lake, config = lake_of(start), load_config(start.config, start.overrides)
    champion = checkpoint_folder(lake, champion_of(start))
    contexts = _contexts(start)
    with tempfile.TemporaryDirectory() as folder:
        random = Path(folder) / "random"
        heads = width // 16
        build_random(
            "qwen3_vl", [c.instruction for c in contexts] * 8, 0, random, hidden=width, heads=heads, kv_heads=heads
        )
        small = {name: VlmPolicy(champion, _in(config.policy, name)) for name in PRECISIONS}
        large = {name: VlmPolicy(random, _in(config.policy, name)) for name in PRECISIONS}
        return {"champion": _timed(small, contexts), f"random Qwen3-VL, {width} wide": _timed(large, contexts[:2])}


def _in(policy: PolicyConfig, precision: str) -> PolicyConfig:
    return policy.model_copy(update={"precision": precision, "max_new_tokens": min(8, policy.max_new_tokens or 8)})


def _timed(policies: dict[str, VlmPolicy], contexts: Sequence[Context]) -> dict[str, float]:
    """Milliseconds of this thread for one answer, the median of some rounds that take the policies in turn."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds: dict[str, list[float]] = {name: [] for name in policies}
    for repeat in range(REPEATS + 1):
        for name, policy in policies.items():
            taken = _taken(policy, contexts)
            if repeat:  # the first round warms up
                seconds[name].append(taken)
    torch.set_num_threads(threads)
    return {name: 1000 * statistics.median(taken) / len(contexts) for name, taken in seconds.items()}


def _taken(policy: Policy, contexts: Sequence[Context]) -> float:
    started = time.thread_time()
    policy.act(contexts)
    return time.thread_time() - started


def _contexts(start: Arm) -> list[Context]:
    """First screens of trajectories in the start's lake."""
    lake = lake_of(start)
    rows: list[dict[str, Any]] = lake.read("steps", ["trajectory_id", "screenshot"], {"step": 0}).to_pylist()[:SCREENS]
    asked = lake.read("trajectories", ["trajectory_id", "instruction"]).to_pylist()
    instructions = {row["trajectory_id"]: row["instruction"] for row in asked}
    digests = sorted({row["screenshot"] for row in rows})
    pictures = {row["sha256"]: row for row in lake.read("screenshots", where={"sha256": digests}).to_pylist()}
    return [
        Context(
            instructions[row["trajectory_id"]], (), Observation(shown["png"], shown["width"], shown["height"], ""), 0
        )
        for row in rows
        if (shown := pictures[row["screenshot"]])
    ]
