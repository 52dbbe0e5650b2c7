"""Compare plans that mix sequence-parallel degrees with plans of one degree: a cost model, no step is run.

Cluster, coefficients and time formula are the ones released with FlexSP (7B model, 64 A100-40G in 8 nodes; arXiv
2412.01523). Lengths are drawn from the percentiles of the released Wikipedia lengths, handled as the release does:
rounded up to 128, those of 192K and more left out (`--lengths FILE`: one length a line, taken in order instead).
Seconds are predictions of that cost model. Arms:

- released static: one degree for all batches, best-fit packing to 0.9 of a group's memory, the last micro-batch
  levelled; degree 64, as the release fixes it for these lengths, and 32, the least that holds the longest sequence.
- released adaptive: the same packing, the best degree for every batch.
- static, one degree a batch, one a micro-batch: the same choices, filled as well as ours is (longest first, even cuts);
  stronger than the published baselines.
- Megatron's hybrid rule, and the integer programme under a time limit.
- even cuts: ours inside a micro-batch, cut into even tokens as in the paper. And ours.

Every arm but the released ones tries the same 24 numbers of micro-batches, and up to 96 until one can be planned. As in
the paper there are 40 batches (8 with `--short`, without the integer programme). Further parts:

- ours against the optimum on small clusters, where the integer programme proved it;
- the tokens that 16 buckets add by rounding up, with the programme's bounds and with equal widths;
- ours against the earlier planner, which listed every partition of up to 512 ranks (32 with `--short`);
- ours against best-fit packing at any one degree, where sequences are large for a group;
- plans for 1,024 ranks.
"""

import argparse
import dataclasses
import math
import resource
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Bar, add_options, finish
from benchmarks.sequence_lengths import (
    A100,
    LONGEST,
    RANKS,
    Case,
    Lengths,
    as_released,
    gui_like,
    listed,
    wikipedia_like,
)
from learning.planning.sequence_cost import ClusterCost, GroupedMicroBatch
from learning.planning.sequence_mix import homogeneous, mixture
from learning.planning.sequence_pack import buckets, mixed_integer
from learning.planning.sequence_plan import cut, plan, total

Planner = Callable[[Lengths], GroupedMicroBatch | None]
BATCH = 512
TRIES, LONGER = 24, 4
"""Numbers of micro-batches that are tried, and times as many where none of them can be planned."""


def released_packing(lengths: Lengths, degree: int) -> float:
    """Milliseconds of a batch under the release's baseline; infinite if its longest fits on no such group.

    Best-fit decreasing into groups of 0.9 of their memory, RANKS / degree groups to a micro-batch in the order they
    were opened, the last micro-batch spread evenly over all its groups.
    """
    if lengths.max() > A100.capacity(degree):
        return math.inf
    packed = best_fit(lengths, max(0.9 * A100.capacity(degree), float(lengths.max())))
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


def best_fit(lengths: Lengths, full: float) -> list[list[int]]:
    """Best-fit decreasing into groups of so many tokens."""
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
    return packed


def best_packing(lengths: Lengths, ranks: int, cost: ClusterCost) -> float:
    """Milliseconds of best-fit decreasing at the best one degree and filling, groups of like time in a micro-batch."""
    best = math.inf
    for degree, share in product(cost.degrees, (1.0, 0.9, 0.7, 0.5)):
        if lengths.max() <= cost.capacity(degree):
            packed = best_fit(lengths, max(int(share * cost.capacity(degree)), int(lengths.max())))
            spans = sorted((float(cost.milliseconds(group, degree).sum()) for group in packed), reverse=True)
            best = min(best, sum(cost.fixed + span for span in spans[:: ranks // degree]))
    return best


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


def megatron_hybrid(lengths: Lengths) -> GroupedMicroBatch | None:
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
    return GroupedMicroBatch((), max(loads))


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


def listed_row(most: int) -> dict[str, Any]:
    """What our plans cost over those of listing every partition, on the batches that it finished and did not refuse."""
    ratios = [total(plan(case.batch.tolist(), case.ranks, case.cluster)) / spent for case, spent in listed(most)]
    return {
        "ranks at most": most,
        "batches": len(ratios),
        "ours / listed, mean": float(np.mean(ratios)),
        "most": float(np.max(ratios)),
        "share above 1.0001": float(np.mean(np.array(ratios) > 1.0001)),
    }


def tight_batches() -> list[tuple[Lengths, int, ClusterCost]]:
    """Batches whose sequences are large beside a group, so that long and short ones have to share memory."""
    draw = np.random.default_rng(0)
    one, two = (dataclasses.replace(A100, degrees=degrees) for degrees in ((1,), (1, 2)))
    full = A100.capacity(1)
    tops = [(top * full, A100) for top in (1, 2, 4, 16)] + [(full, one), (2 * full, two)]
    uniform = [
        (draw.integers(1, top, number), RANKS, cost) for top, cost in tops for number in (128, 512) for _ in range(3)
    ]
    pairs = np.repeat(np.array([0.6, 0.4]) * full, 128).astype(np.int64)
    mixed = [(draw.integers(full // 20, 2 * full, 126), RANKS, two) for _ in range(6)]
    small = dataclasses.replace(A100, token=1.0, states=0.0, memory=10.0, fixed=100.0, degrees=(1,))
    return [*uniform, (pairs, RANKS, A100), (pairs, RANKS, one), *mixed, (np.array([6, 6, 4, 4]), 1, small)]


def packing_row() -> dict[str, Any]:
    """What our plans cost over best-fit packing at the best one degree, on tight batches."""
    batches = tight_batches()
    ratios = [
        total(plan(batch.tolist(), ranks, cost)) / best_packing(batch, ranks, cost) for batch, ranks, cost in batches
    ]
    return {
        "tight batches": len(ratios),
        "ours / best-fit packing, mean": float(np.mean(ratios)),
        "least": float(np.min(ratios)),
        "most": float(np.max(ratios)),
        "worse": int(np.sum(np.array(ratios) > 1 + 1e-9)),
    }


def large_rows(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """1,024 ranks and eight degrees: what planning a batch takes, the slowest of these seeds, and what it gains."""
    rows = []
    kinds = [(lengths, each) for each in (1, 2, 8) for lengths in ("wiki", "gui")]
    drawn = {kind: [Case(kind[0], 1_024, 8, kind[1], seed) for seed in seeds] for kind in kinds}
    runs = {kind: [(case.batch.tolist(), case.cluster) for case in cases] for kind, cases in drawn.items()}
    cluster = drawn["gui", 1][0].cluster
    runs["just beyond one rank", 2] = [([cluster.capacity(1) + 1] * 2_048, cluster)]
    for (lengths, _), batches in runs.items():
        spent, gains, number = list[float](), list[float](), 0
        for batch, cost in batches:
            started = time.process_time()
            made = plan(batch, 1_024, cost)
            spent.append(time.process_time() - started)
            gains.append(total(made) / total(plan(batch, 1_024, cost, 0)))
            number = max(number, len(made))
        rows.append(
            {
                "lengths": lengths,
                "batches": len(batches),
                "sequences": len(batches[0][0]),
                "micro-batches": number,
                "ours / without a search": float(np.mean(gains)),
                "CPU s": max(spent),
                "MiB of the process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    return rows


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


def bars_of(
    first: dict[str, Any], second: dict[str, Any], others: list[dict[str, Any]], large: list[dict[str, Any]]
) -> list[Bar]:
    """What must hold."""
    oracle, buckets, grid, packing = others[:4]
    lost = first["worse than one degree"] + second["worse than one degree"]
    return [
        Bar("batches worse than the best single degree", lost, 0, "lower"),
        Bar("tight batches worse than best-fit packing at any one degree", packing["worse"], 0, "lower"),
        Bar("cases whose optimum was proven", oracle["proven"], oracle["cases"], "higher"),
        Bar("mean gap to the optimum, 8 ranks", oracle["mean gap"], 0.01, "lower"),
        Bar("largest gap to the optimum", oracle["largest gap"], 0.04, "lower"),
        Bar("tokens rounded up by 16 buckets", buckets["rounded up"], 0.04, "lower"),
        Bar(
            "rounded up, equal width / ours",
            buckets["equal width, rounded up"] / buckets["rounded up"],
            1.0,
            "higher",
        ),
        Bar("released static 64 / ours, 64 ranks, 192K", first["released static 64"] / first["ours"], 1.72, "higher"),
        Bar("CPU seconds to plan a batch, one core", first["planned in CPU s"], 3.0, "lower"),
        Bar("ours / every partition listed, the worst batch", grid["most"], 1.002, "lower"),
        Bar(
            "1,024 ranks, eight degrees: CPU seconds, the slowest batch",
            max(row["CPU s"] for row in large),
            1.0,
            "lower",
        ),
        Bar("1,024 ranks, eight degrees: MiB", max(row["MiB of the process"] for row in large), 500.0, "lower"),
    ]


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
    large = large_rows((0, 7) if chosen.short else range(8))
    gui = [gui_like(BATCH, np.random.default_rng(seed)) for seed in range(2 if chosen.short else 8)]
    first, second = cluster_row(name, wiki), cluster_row("GUI mix", gui)
    others = [
        oracle_row(cases),
        bucket_row(wiki),
        listed_row(32 if chosen.short else 512),
        packing_row(),
        *([] if chosen.short else [programme_row(wiki[:4], 5.0)]),
    ]
    bars = bars_of(first, second, others, large)
    tables = [turned([first, second]), *([other] for other in others), large]
    return finish("sequence_plan", [first, second, *others, *large], bars, chosen, tables)


if __name__ == "__main__":
    raise SystemExit(main())
