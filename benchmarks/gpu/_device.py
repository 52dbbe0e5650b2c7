"""Share the device, a random model and a clock among the GPU benchmarks."""

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import Bar, add_options, finish
from learning.engines.fsdp.model import load_model
from learning.parallel.packed_attention import PackedDocuments
from models.random_vlm import build_random

Row = dict[str, Any]
Measure = Callable[[argparse.Namespace], tuple[list[Row], list[Bar]]]
"""Measures with the options of `chosen`, and returns rows and bars."""
NO_GPU = "skipped: there is no GPU here (--device cpu runs a tiny setting)."
TINY = {"hidden": 64, "layers": 2, "heads": 4, "kv_heads": 4, "vision_hidden": 64, "vision_layers": 2}
SIZES: dict[str, dict[str, Any]] = {
    "cuda": {
        "hidden": 2048, "layers": 16, "heads": 16, "kv_heads": 8, "head_width": 128,
        "vision_hidden": 1024, "vision_layers": 24,
    },
    "cpu": TINY,
}  # fmt: skip
"""Random Qwen3-VL models: 0.8 billion weights for a GPU, a tiny one to try the program on a CPU."""


def chosen(
    description: str, parser: argparse.ArgumentParser | None = None, words: Sequence[str] | None = None
) -> argparse.Namespace | None:
    """The options, or None after one plain line if the device is not there; then there is nothing to measure.

    Args:
        description: of the benchmark.
        parser: with the benchmark's own options; a new one if not given.
        words: the arguments; those of the process if not given.
    """
    parser = add_options(parser or argparse.ArgumentParser(description=description))
    parser.add_argument("--device", choices=tuple(SIZES), default="cuda", help="cpu: a tiny setting, to try it")
    options = parser.parse_args(words)
    if options.device == "cuda" and not torch.cuda.is_available():
        print(NO_GPU)
        return None
    return options


def run(description: str, measure: Measure) -> int:
    """Run one benchmark and print its table; return 1 if a bar is missed, 0 without a GPU."""
    options = chosen(description)
    return 0 if options is None else finish("gpu", *measure(options), options)


def device_name(device: str) -> str:
    """For the table."""
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def random_model(device: str, folder: Path) -> Any:
    """The random model, computing in bf16 on a GPU and fp32 on a CPU."""
    build_random("qwen3_vl", ["Click on ok."] * 8, 0, folder / "model", **SIZES[device])
    return load_model(folder / "model").to(device, torch.bfloat16 if device == "cuda" else torch.float32).train()


def language_pass(model: Any, lengths: list[int]) -> Callable[[], None]:
    """Forward and backward of packed documents of random tokens through the language model."""
    device = model.device
    ids = torch.randint(0, 256, (1, sum(lengths)), device=device)
    positions = torch.cat([torch.arange(length) for length in lengths]).expand(3, 1, -1).to(device)
    packed = PackedDocuments.of(tuple(accumulate(lengths, initial=0)), device=device)
    stack = model.base_model.language_model

    def run() -> None:
        embedded = model.get_input_embeddings()(ids)
        out = stack(inputs_embeds=embedded, position_ids=positions, packed=packed, use_cache=False)
        out.last_hidden_state.float().sum().backward()

    return run


def vision_pass(model: Any, screens: list[int]) -> Callable[[], None]:
    """Forward and backward of screens of so many patches each (rows of 2 merged patches) through the vision tower."""
    vision = model.config.vision_config
    width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    pixels = torch.randn(sum(screens), width, device=model.device, dtype=model.dtype)
    grids = torch.tensor([[1, 4, patches // 4] for patches in screens], device=model.device)

    def run() -> None:
        seen = model.base_model.get_image_features(pixel_values=pixels, image_grid_thw=grids, return_dict=True)
        total: Tensor = torch.cat(list(seen.pooler_output)).float().sum()
        for level in seen.deepstack_features:
            total = total + torch.cat(list(level)).float().sum()
        total.backward()

    return run


def milliseconds(model: Any, work: Callable[[], None], repeats: int = 5) -> float:
    """The least of several runs, after one that is not counted; processor time on a CPU."""
    cuda = model.device.type == "cuda"
    clock = time.perf_counter if cuda else time.process_time
    best = float("inf")
    for repeat in range(repeats + 1):
        model.zero_grad(set_to_none=True)
        if cuda:
            torch.cuda.synchronize()
        started = clock()
        work()
        if cuda:
            torch.cuda.synchronize()
        if repeat:
            best = min(best, clock() - started)
    return 1000 * best
