"""What mixing groups of different sequence-parallel degree gains: a cost model, no step is run.

Cluster, coefficients and time formula are the ones released with FlexSP (7B model, 64 A100-40G in 8 nodes; arXiv
2412.01523). Lengths are drawn from the percentiles of the released Wikipedia lengths, handled as the release does:
rounded up to 128, those of 192K and more left out (`--lengths FILE`: one length a line, taken in order instead).
Seconds are predictions of that cost model. Arms:

- released static: one degree for all batches, best-fit packing to 0.9 of a group's memory, the last micro-batch
  levelled; degree 64, as the release fixes it for these lengths, and 32, the least that holds the longest sequence.
- released adaptive: the same packing, the best degree for every batch.
- static, one degree a batch, one a micro-batch: the same choices, but filled as well as ours is (longest first, even
  cuts); stronger than the published baselines.
- Megatron's hybrid rule, and the integer programme under a time limit.
- even cuts: ours inside a micro-batch, cut into even tokens as in the paper. And ours.

Every arm but the released ones tries the same 24 numbers of micro-batches, and up to 96 until one can be planned. As in
the paper, 40 batches (8 with `--short`, and without the integer programme). A last part compares ours with the optimum
on small clusters, where the integer programme proved it, and tells how many tokens 16 buckets add by rounding up, with
the programme's bounds and with equal widths.
"""

import argparse
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._report import Bar, add_options, finish
from learning.planning.sequence_cost import ClusterCost, MicroBatch
from learning.planning.sequence_milp import buckets, mixed_integer
from learning.planning.sequence_mix import homogeneous, mixture
from learning.planning.sequence_plan import cut, plan, total

Lengths = npt.NDArray[np.int64]
Planner = Callable[[Lengths], MicroBatch | None]
RANKS, BATCH, LONGEST = 64, 512, 192_000
ROUNDED = 2 * RANKS
TRIES, LONGER = 24, 4
"""Numbers of micro-batches that are tried, and times as many where none of them can be planned."""
MILLISECOND = 2**20 / 1e6
"""The release divides MiB by GB/s and calls it milliseconds."""
A100 = ClusterCost(
    quadratic=5.128e-6, linear=0.1839576, fixed=629.3563, exchanged=4 * 2 * 32 * 4096 * 2 / 2**20,
    bandwidth=tuple(
        (degree, speed * MILLISECOND)
        for degree, speed in ((2, 119.54), (4, 104.07), (8, 96.5), (16, 10.33), (32, 5.94), (64, 4.87))
    ),
    token=4.480442, states=7.117447 * 16 / RANKS * 1024, memory=30 * 1024, degrees=(1, 2, 4, 8, 16, 32, 64),
)  # fmt: skip
WIKIPEDIA = (
    (0, 12), (1, 39), (5, 67), (10, 87), (25, 146), (50, 347), (75, 862), (90, 2_112), (95, 3_720), (96, 4_392),
    (97, 5_390), (98, 7_087), (99, 10_919), (99.5, 15_986), (99.9, 37_353), (99.95, 51_510), (99.99, 101_537),
    (99.999, 230_941), (100, 1_823_777),
)  # fmt: skip
"""Percentiles of the million lengths released with FlexSP, in tokens; their mean is 1,014."""


def wikipedia_like(count: int, draw: np.random.Generator) -> Lengths:
    """Lengths drawn by the released percentiles, log-linear in between."""
    share, tokens = zip(*WIKIPEDIA, strict=True)
    found = np.zeros(0, dtype=np.int64)
    while len(found) < count:
        long = np.exp(np.interp(100 * draw.random(count), share, np.log(tokens)))
        found = np.concatenate([found, as_released(long.astype(np.int64))])
    return found[:count]


def as_released(long: Lengths) -> Lengths:
    """Rounded up for every degree and the longest left out, as the release reads its files."""
    rounded = -(-long // ROUNDED) * ROUNDED
    return rounded[rounded <= LONGEST - ROUNDED]


def gui_like(count: int, draw: np.random.Generator) -> Lengths:
    """Trajectories as a GUI policy trains on: median 9.8K tokens, 90th percentile 40K, at most 170K."""
    return np.minimum(np.exp(draw.normal(math.log(9_800), 1.1, count)), 170_000).astype(np.int64) + 1


def released_packing(lengths: Lengths, degree: int) -> float:
    """Milliseconds of a batch under the release's baseline; infinite if its longest fits on no such group.

    Best-fit decreasing into groups of 0.9 of their memory, RANKS / degree groups to a micro-batch in the order they
    were opened, the last micro-batch spread evenly over all its groups.
    """
    if lengths.max() > A100.capacity(degree):
        return math.inf
    full = max(0.9 * A100.capacity(degree), float(lengths.max()))
    packed: list[list[int]] = []
    left: list[float] = []
    for length in sorted(lengths.tolist(), reverse=True):
        fits = [place for place, room in enumerate(left) if room >= length]
        if fits:
            place = min(fits, key=lambda place: left[place])
            packed[place].append(length)
            left[place] -= length
        else:
            packed.append([length])
            left.append(full - length)
    side = RANKS // degree
    spans = []
    for start in range(0, len(packed), side):
        groups = packed[start : start + side]
        spans.append(max(A100.fixed + float(A100.milliseconds(group, degree).sum()) for group in groups))
    if len(packed) % side:
        rest = [length for group in packed[len(packed) - len(packed) % side :] for length in group]
        level = homogeneous(rest, RANKS, A100, degree)
        spans[-1] = spans[-1] if level is None else level.milliseconds
    return sum(spans)


def batch_of(lengths: Lengths, planned: Planner, tries: int = TRIES) -> float:
    """Milliseconds of the best number of even micro-batches with one planner for each; infinite if there is none."""
    least = max(1, math.ceil(lengths.sum() / (A100.capacity(1) * RANKS)))
    best = math.inf
    for number in range(least, least + LONGER * tries):
        if number >= least + tries and math.isfinite(best):
            break
        spent = 0.0
        for piece in cut(lengths, number):
            made = planned(lengths[piece])
            spent += math.inf if made is None else made.milliseconds
            if spent >= best:
                break
        best = min(best, spent)
    return best


def megatron_hybrid(lengths: Lengths) -> MicroBatch | None:
    """Each sequence on the fewest ranks that hold it, a power of two; the least loaded group of that degree first."""
    need = [A100.least_degree(int(one)) for one in lengths]
    ranks = {degree: need.count(degree) for degree in sorted(set(need), reverse=True)}
    work = {
        degree: sum(int(one) ** 2 / degree for one, d in zip(lengths, need, strict=True) if d == degree)
        for degree in ranks
    }
    left, groups = RANKS, []
    for place, degree in enumerate(ranks):
        later = sum(list(ranks)[place + 1 :])
        share = max(
            1, round((left - later) * work[degree] / max(1e-9, sum(work[d] for d in list(ranks)[place:])) / degree)
        )
        count = min(share, max(1, (left - later) // degree), ranks[degree])
        groups += [degree] * count
        left -= degree * count
    if left < 0:
        return None
    loads = [A100.fixed] * len(groups)
    room = [A100.capacity(degree) for degree in groups]
    for index in np.argsort(-lengths):
        long = int(lengths[index])
        fits = [g for g, degree in enumerate(groups) if degree >= need[index] and room[g] >= long]
        if not fits:
            return None
        chosen = min(fits, key=lambda g: (groups[g] != need[index], loads[g]))
        loads[chosen] += float(A100.milliseconds([long], groups[chosen])[0])
        room[chosen] -= long
    return MicroBatch((), max(loads))


def of_degree(degree: int) -> Planner:
    """Groups of one degree, filled longest first."""
    return lambda piece: homogeneous(piece, RANKS, A100, degree)


def arms_of(lengths: Lengths) -> dict[str, float]:
    """Milliseconds of one batch under every arm, and what ours took to plan, of this process and of the clock."""
    least = next(degree for degree in A100.degrees if A100.capacity(degree) >= LONGEST)
    released = {degree: released_packing(lengths, degree) for degree in A100.degrees}
    holding = [degree for degree in A100.degrees if lengths.max() <= A100.capacity(degree)]
    filled = {degree: batch_of(lengths, of_degree(degree)) for degree in holding}
    found = {
        "released static 64": released[64],
        f"released static {least}": released[least],
        "released adaptive": min(released.values()),
        "static 64": filled[64],
        f"static {least}": filled[least],
        "one degree a batch": min(filled.values()),
        "one a micro-batch": batch_of(lengths, lambda piece: homogeneous(piece, RANKS, A100)),
        "Megatron hybrid": batch_of(lengths, megatron_hybrid),
        "even cuts": batch_of(lengths, lambda piece: mixture(piece, RANKS, A100), 5),
    }
    wall, worked = time.perf_counter(), time.process_time()
    found["ours"] = total(plan(lengths.tolist(), RANKS, A100))
    return found | {"wall": time.perf_counter() - wall, "worked": time.process_time() - worked}


def cluster_row(name: str, batches: Sequence[Lengths]) -> dict[str, Any]:
    """Mean predicted seconds of every arm over batches, what ours took to plan, and how often it lost."""
    runs = [arms_of(lengths) for lengths in batches]
    timed = ("wall", "worked")
    means = {arm: float(np.mean([run[arm] for run in runs])) / 1000 for arm in runs[0] if arm not in timed}
    return {
        "lengths": name,
        "batches": len(runs),
        **means,
        "planned in s": float(np.mean([run["wall"] for run in runs])),
        "planned in CPU s": float(np.mean([run["worked"] for run in runs])),
        "worse than one degree": sum(run["ours"] > run["one a micro-batch"] + 1e-6 for run in runs),
    }


def programme_row(batches: Sequence[Lengths], seconds: float) -> dict[str, Any]:
    """The integer programme over 16 buckets and ours on the same batches, in predicted seconds."""
    programme, ours = [], []
    for lengths in batches:
        pieces = cut(lengths, math.ceil(lengths.sum() / (A100.capacity(1) * RANKS)))
        made = [mixed_integer(lengths[piece], RANKS, A100, seconds=seconds).batch for piece in pieces]
        programme.append(sum(math.inf if one is None else one.milliseconds for one in made) / 1000)
        ours.append(total(plan(lengths.tolist(), RANKS, A100)) / 1000)
    return {
        "batches": len(batches),
        f"MILP, {seconds:.0f} s a micro-batch": float(np.mean(programme)),
        "ours": float(np.mean(ours)),
    }


def oracle_row(cases: int) -> dict[str, Any]:
    """Relative gaps of ours to the optimum, 8 ranks, 8 to 16 sequences, over the cases where it was proven."""
    small = dataclasses.replace(A100, degrees=(1, 2, 4, 8), states=2_000.0)
    gaps = []
    for case in range(cases):
        draw = np.random.default_rng(case)
        shape = wikipedia_like(8 + case % 9, draw)
        lengths = np.minimum(shape * small.capacity(8) // (2 * shape.sum()), small.capacity(8) // 4) + 1
        answer = mixed_integer(lengths, 8, small, number=len(lengths), seconds=60.0)
        ours = mixture(lengths, 8, small)
        if answer.proven and answer.batch is not None and ours is not None:
            gaps.append(ours.milliseconds / answer.batch.milliseconds - 1)
    return {
        "cases": cases,
        "proven": len(gaps),
        "least gap": float(np.min(gaps)),
        "mean gap": float(np.mean(gaps)),
        "largest gap": float(np.max(gaps)),
    }


def bucket_row(batches: Sequence[Lengths], number: int = 16) -> dict[str, Any]:
    """Tokens that rounding up to buckets adds, as a share of all, over micro-batches as the programme gets them."""
    ours, even, tokens = 0, 0, 0
    for lengths in batches:
        for piece in cut(lengths, math.ceil(lengths.sum() / (A100.capacity(1) * RANKS))):
            long = lengths[piece]
            upper, bucket = buckets(long, number)
            width = math.ceil(long.max() / number)
            ours += int((upper[bucket] - long).sum())
            even += int((-(-long // width) * width - long).sum())
            tokens += int(long.sum())
    return {"buckets": number, "rounded up": ours / tokens, "equal width, rounded up": even / tokens}


def turned(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The clusters side by side: one line per arm."""
    lines = []
    for arm in (key for key in rows[0] if key != "lengths"):
        line: dict[str, Any] = {"arm": arm}
        for row in rows:
            is_arm = isinstance(row[arm], float) and not arm.startswith("planned")
            line |= {row["lengths"]: row[arm], f"{' ' * len(line)}over ours": row[arm] / row["ours"] if is_arm else ""}
        lines.append(line)
    return lines


def main() -> int:
    """Prints the tables; exit code 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=Path, help="a file of lengths, one a line, to take batches from in order")
    chosen = add_options(parser).parse_args()
    count, cases = (8 if chosen.short else 40), 25
    if chosen.lengths:
        given = as_released(np.loadtxt(chosen.lengths, dtype=np.int64))
        name, wiki = chosen.lengths.name, [given[start * BATCH : (start + 1) * BATCH] for start in range(count)]
    else:
        name = "Wikipedia's percentiles, 192K"
        wiki = [wikipedia_like(BATCH, np.random.default_rng(seed)) for seed in range(count)]
    gui = [gui_like(BATCH, np.random.default_rng(seed)) for seed in range(2 if chosen.short else 8)]
    first, second = cluster_row(name, wiki), cluster_row("GUI mix", gui)
    others = [oracle_row(cases), bucket_row(wiki), *([] if chosen.short else [programme_row(wiki[:4], 5.0)])]
    lost = first["worse than one degree"] + second["worse than one degree"]
    bars = [
        Bar("batches worse than the best single degree", lost, 0, "lower"),
        Bar("cases whose optimum was proven", others[0]["proven"], cases, "higher"),
        Bar("mean gap to the optimum, 8 ranks", others[0]["mean gap"], 0.01, "lower"),
        Bar("largest gap to the optimum", others[0]["largest gap"], 0.04, "lower"),
        Bar("tokens rounded up by 16 buckets", others[1]["rounded up"], 0.04, "lower"),
        Bar(
            "rounded up, equal width / ours",
            others[1]["equal width, rounded up"] / others[1]["rounded up"],
            1.0,
            "higher",
        ),
        Bar("released static 64 / ours, 64 ranks, 192K", first["released static 64"] / first["ours"], 1.72, "higher"),
        Bar("CPU seconds to plan a batch, one core", first["planned in CPU s"], 3.0, "lower"),
    ]
    tables = [turned([first, second]), *([other] for other in others)]
    return finish("sequence_plan", [first, second, *others], bars, chosen.json, tables)


if __name__ == "__main__":
    raise SystemExit(main())
