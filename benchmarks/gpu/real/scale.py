"""Choose the sizes of models and samples: the published geometries on a GPU, and a tiny one on a CPU."""

from dataclasses import replace
from typing import Any, Literal

import torch

from benchmarks.trl.workload import Scale

Device = Literal["cpu", "cuda"]
TOWER: dict[str, Any] = {
    "vision_hidden": 1280, "vision_layers": 32, "vision_heads": 16, "vision_intermediate": 3420,
}  # fmt: skip
GEOMETRY: dict[str, dict[str, Any]] = {
    "3b": {
        "kind": "qwen2_5_vl", "hidden": 2048, "layers": 36, "heads": 16, "kv_heads": 2, "head_width": 128,
        "intermediate": 11008, "vocabulary": 151_936, **TOWER,
    },
    "7b": {
        "kind": "qwen2_5_vl", "hidden": 3584, "layers": 28, "heads": 28, "kv_heads": 4, "head_width": 128,
        "intermediate": 18944, "vocabulary": 152_064, **TOWER,
    },
}  # fmt: skip
"""Qwen2.5-VL's sizes, with an untied head in both."""
TINY: dict[str, Any] = {"kind": "qwen2_5_vl", "hidden": 64, "layers": 2}
BYTES = {"3b": 16.0, "7b": 2.0}
"""Bytes of a weight next to activations: its fp32 master, gradient and moments, or bf16 for a frozen one."""
FREE = 0.2
"""Share of a card's memory that is kept for activations."""
SCREENS = ((640, 480), (1024, 640), (1280, 800))
WHOLE = 1000
"""Steps of the training of which the first are measured: blocks are compiled for long trainings only."""


def scale_of(model: str, device: Device, short: bool) -> Scale:
    """Return the sizes of a comparison: of `3b` or `7b`, with as many layers as fit the card."""
    tiny = Scale(dict(TINY), batch=4, steps=3, whole=WHOLE, mixed=((160, 224), (320, 256)), group=2, at_once=(4, 2, 1))
    if device == "cpu":
        return tiny
    layers = layers_for(model, torch.cuda.get_device_properties(0).total_memory)
    return replace(
        tiny,
        model={**GEOMETRY[model], "layers": layers},
        device="cuda",
        batch=16,
        steps=5 if short else 7,
        mixed=SCREENS,
        group=8,
        at_once=(16, 8, 4, 2, 1),
    )


def layers_for(model: str, memory: int) -> int:
    """Return how many of the language model's layers fit so many bytes.

    Raises:
        ValueError: not even one does.
    """
    sizes = GEOMETRY[model]
    width, inner, seen = sizes["hidden"], sizes["intermediate"], sizes["vision_hidden"]
    keys = sizes["kv_heads"] * sizes["head_width"]
    layer = 2 * width * width + 2 * width * keys + 3 * width * inner
    others = 2 * sizes["vocabulary"] * width
    others += sizes["vision_layers"] * (4 * seen * seen + 3 * seen * sizes["vision_intermediate"])
    others += 4 * seen * (4 * seen + width)  # the merger
    layers = int((memory * (1 - FREE) / BYTES[model] - others) // layer)
    if layers < 1:
        raise ValueError(f"a GPU of {memory / 2**30:.0f} GiB is too small for a layer of the geometry {model}.")
    return min(sizes["layers"], layers)
