"""Fit the cost model on one GPU, milliseconds = sum(a1 l^2 + a2 l) + b, and measure its error on held-out batches.

Batches of one length and count are measured for each phase (`--device cpu`: a tiny model, to try the program). Every
other point is fitted, the others are predicted. FlexSP (arXiv 2412.01523) claims an error below 6 %. Below some size a
pass takes as long as the launches of its kernels, which is no sum. So the fit is made once over all sizes, and once
over those that take at least `BUSY` times as long as the quickest.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from benchmarks.gpu._device import Row, device_name, language_pass, milliseconds, random_model, run, vision_pass
from benchmarks.harness import Bar

LENGTHS = {"cuda": (256, 512, 1024, 2048, 4096, 8192, 16384, 32768), "cpu": (32, 64, 128, 256, 512)}
TOKENS = {"cuda": 32768, "cpu": 1024}
"""The most tokens of one measurement."""

BUSY = 2.0

Point = tuple[int, int, float]
"""Length, count, milliseconds."""
Pass = Callable[[Any, list[int]], Callable[[], None]]


def fit(points: list[Point]) -> tuple[float, float, float]:
    """a1, a2, b, none below 0, of (length, count, milliseconds) points: the least squares of relative errors."""
    rows = np.array([[count * length**2, count * length, 1.0] for length, count, _ in points], dtype=np.float64)
    times = np.array([taken for _, _, taken in points])
    scale = rows.max(axis=0)
    found, _ = nnls(rows / scale / times[:, None], np.ones(len(times)))
    a1, a2, b = found / scale
    return float(a1), float(a2), float(b)


def held_out(points: list[Point]) -> tuple[float, float, float, float]:
    """a1, a2, b of every other point, and the mean relative error on the rest."""
    a1, a2, b = fit(points[::2])
    errors = [abs((a1 * n * n + a2 * n) * count + b - taken) / taken for n, count, taken in points[1::2]]
    return a1, a2, b, float(np.mean(errors))


def points_of(model: Any, work: Pass, lengths: tuple[int, ...], most: int) -> list[Point]:
    """Points over a grid of lengths and counts."""
    grid = [(length, count) for length in lengths for count in (1, 2, 4, 8) if length * count <= most]
    return [(length, count, milliseconds(model, work(model, [length] * count))) for length, count in grid]


def measure(options: argparse.Namespace) -> tuple[list[Row], list[Bar]]:
    """Return the rows and the bars."""
    lengths = LENGTHS[options.device][::2] if options.short else LENGTHS[options.device]
    rows, bars = list[Row](), list[Bar]()
    with tempfile.TemporaryDirectory() as folder:
        model = random_model(options.device, Path(folder))
        phases: dict[str, Pass] = {"language": language_pass, "vision": vision_pass}
        for phase, work in phases.items():
            points = points_of(model, work, lengths, TOKENS[options.device])
            busy = [point for point in points if point[2] >= BUSY * min(taken for _, _, taken in points)]
            for sizes, chosen_points in {"all": points, "busy": busy}.items():
                if len(chosen_points) < 4:
                    continue
                a1, a2, b, error = held_out(chosen_points)
                rows.append(
                    {
                        "device": device_name(options.device), "phase": phase, "sizes": sizes,
                        "points": len(chosen_points), "a1_ms": a1, "a2_ms": a2, "b_ms": b, "held_out_error": error,
                        "measured": chosen_points,
                    }
                )  # fmt: skip
                if options.device == "cuda":
                    bars.append(Bar(f"{phase}, {sizes} sizes: mean held-out error", error, 0.06, "lower"))
    return rows, bars


if __name__ == "__main__":
    raise SystemExit(run(__doc__ or "", measure))
