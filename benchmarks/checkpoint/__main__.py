"""Measure how long a checkpoint blocks the training, and the bytes that a load on other ranks reads.

All ways (ours, torch.save and DCP) run in turn on gloo ranks of this machine: a language model of 1 GiB in fp32 with
AdamW's moments, in rows over 4 ranks as FSDP2 keeps it. Blocking lasts until the training may change its weights again:
the slowest rank's, median over the rounds; "x ours" is the median of the ratios within a round. The first save of each
way takes its buffers and starts its helpers, and is a column of its own. All ways force their files to the disk
(fsync). Bytes read are counted at the file. ETTR is the share of a training's time that is not lost to one failure, by
ByteCheckpoint's formula, from the measured seconds of a save and of a load on 3 ranks, for an assumed interval.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import compress
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint._dedup_save_plans import dedup_save_plans
from torch.distributed.checkpoint.default_planner import create_default_local_save_plan
from torch.distributed.checkpoint.planner import SavePlan

from benchmarks.checkpoint.ranks import shapes
from benchmarks.harness import Bar, finish, options
from learning.checkpoint.planner import bytes_of, global_plan, local_plan

ASYNC = ("dcp.async_save, thread", "dcp.async_save, process")
OTHERS = (
    "torch.save, gathered",
    "torch.save, a file a rank",
)
INTERVALS = (10.0, 60.0)
"""Seconds of training from one checkpoint to the next, assumed for ETTR."""
Row = dict[str, Any]


def main() -> int:
    """Runs the benchmark; 0 if every bar is met."""
    asked = options(__doc__ or "")
    hidden = 512 if asked.short else 1024
    with tempfile.TemporaryDirectory(prefix="flywheel-checkpoint-") as folder:
        place = str(Path(folder))
        few = OTHERS if asked.short else ()
        save = {"task": "save", "place": place, "hidden": 1024, "rounds": 5 if asked.short else 9, "few": few}
        first = {"task": "load", "place": place, "hidden": hidden, "sources": [], "replicas": [], "save": True}
        times, source = _on_ranks(4, [save, first], Path(folder))
        saved, plan = saving(times)
        read = reading(Path(folder), hidden, source, [2, 3] if asked.short else [2, 3, 4])
    spread = balance()
    blocked = {row["way"]: row["x ours"] for row in saved}
    bars = [
        Bar("blocking of dcp.save / ours", blocked["dcp.save"], 9.0, "higher"),
        *(Bar(f"blocking of {way} / ours", blocked[way], 1.0, "higher") for way in ASYNC),
        Bar("most bytes read / unique bytes, ours", _most(read, "read / unique"), 1.005, "lower"),
        Bar("plan, cached / first", plan["cached_s"] / plan["first_s"], 0.1, "lower"),
        Bar("most bytes of a rank / mean, replicas, ours", _most(spread, "max / mean"), 1.05, "lower"),
    ]
    return finish("checkpoint", [*saved, *read, *spread, *kept_time(saved, read)], bars, asked)


def saving(found: list[Row]) -> tuple[list[Row], dict[str, float]]:
    """A row for each way to save, and the seconds of our plan when it is made and when it is kept."""
    turns: dict[str, list[dict[str, float]]] = defaultdict(list)
    for line in found:
        if "way" in line:
            turns[line["way"]].append(line)
    ours = [turn["blocked"] for turn in turns["ours"][1:]]
    rows = []
    for way, (first, *later) in turns.items():
        every = [turn["blocked"] for turn in later]
        times = statistics.median(theirs / own for theirs, own in zip(every, ours, strict=False))
        blocking = {"blocking s": statistics.median(every), "x ours": times, "first s": first["blocked"]}
        whole = statistics.median(turn["whole"] for turn in later)
        rows.append(_row("save 1 GiB, 4 ranks", way, **blocking, whole=whole) | {"every blocking s": every})
    return rows, next(line for line in found if "first_s" in line)


def reading(place: Path, hidden: int, sources: list[Row], chain: list[int]) -> list[Row]:
    """A row for each load on another number of ranks, in rows and with each row on all of them."""
    unique = sum(4 * torch.Size(shape).numel() for shape in shapes(hidden).values())
    rows = []
    for ranks in chain:
        job = {"task": "load", "place": str(place), "hidden": hidden, "sources": sources, "replicas": [1, ranks]}
        (found,) = _on_ranks(ranks, [job | {"save": ranks != chain[-1]}], place)
        for line in found:
            if "way" not in line:
                sources = [*sources, line]
                continue
            copies = ", each row on all" if line["replicas"] > 1 else ""
            what = f"load {unique / 2**30:.2f} GiB, {line['from']} to {line['to']} ranks{copies}"
            rows.append(_row(what, line["way"], whole=line["seconds"], read=line["read"] / unique))
    return rows


def balance() -> list[Row]:
    """A row for each way that 4 ranks can hold the same numbers; plans alone, nothing is written."""
    model = {name: torch.empty(shape, device="meta") for name, shape in shapes(1024).items()}
    rows = []
    for name, copies in (("each holds all", 4), ("each tensor on two", 2)):
        held = [[(at - rank) % 4 < copies for at in range(len(model))] for rank in range(4)]
        states = [dict(compress(model.items(), mine)) for mine in held]
        stock = [create_default_local_save_plan(dict(state), rank == 0) for rank, state in enumerate(states)]
        shares = {
            "ours": global_plan([local_plan(state) for state in states])[0],
            "dcp.save": dedup_save_plans(stock),
            "dcp.save, lowest rank": dedup_save_plans(stock, save_to_lowest_rank=True),
        }
        rows += [_row(f"plan, 4 ranks: {name}", way, uneven=_uneven(plans)) for way, plans in shares.items()]
    return rows


def kept_time(saved: list[Row], read: list[Row]) -> list[Row]:
    """ETTR for each assumed interval, of what both saves and loads were measured of."""
    saves = {row["way"]: row["whole s"] for row in saved}
    loads = {
        row["way"]: row["whole s"] for row in read if "4 to 3 ranks" in row["what"] and "each row" not in row["what"]
    }
    pairs = (("dcp.save", "dcp.load"), ("ours", "ours"))
    return [
        _row(f"ETTR, a checkpoint every {every:.0f} s", save, ettr=ettr(every, saves[save], loads[load]))
        for every in INTERVALS
        for save, load in pairs
    ]


def ettr(interval: float, save: float, load: float) -> float:
    """Effective training time ratio: N T / (N T + (N T + T_save) / 2 + T_load) (arXiv 2407.20143, appendix).

    A failure is taken to come once per interval, halfway; all in seconds.
    """
    return interval / (interval + (interval + save) / 2 + load)


def _row(
    what: str,
    way: str,
    *,
    whole: float | None = None,
    read: float | None = None,
    uneven: float | None = None,
    ettr: float | None = None,
    **blocking: float,
) -> Row:
    empty = {"blocking s": None, "x ours": None, "first s": None}
    known = {"whole s": whole, "read / unique": read, "max / mean": uneven, "ETTR": ettr}
    return {"what": what, "way": way, **empty, **blocking, **known}


def _most(rows: list[Row], column: str) -> float:
    return max(row[column] for row in rows if row["way"] == "ours")


def _uneven(plans: list[SavePlan]) -> float:
    loads = [sum(bytes_of(item) for item in plan.items) for plan in plans]
    return max(loads) / (sum(loads) / len(loads))


def _on_ranks(ranks: int, jobs: list[Row], place: Path) -> list[list[Row]]:
    """What rank 0 says of each job."""
    file = place / f"jobs-{ranks}.json"
    file.write_text(json.dumps(jobs))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*torchrun, "-m", "benchmarks.checkpoint.ranks", str(file)]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the ranks failed:\n{done.stderr[-3000:]}")
    return json.loads(file.with_suffix(".found").read_text())


if __name__ == "__main__":
    sys.exit(main())
