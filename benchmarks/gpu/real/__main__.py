"""Train and run a model of real size on one GPU, next to TRL and `generate` of `transformers`.

`python -m benchmarks.gpu.real [PART ...] [--short] [--device cpu] [--keep PATH] [--json PATH]`

PART is `sft`, `generation`, `grpo` or `lora`; all of them, in this order, if none is named. Models have the geometry of
Qwen2.5-VL-3B, or 7B for `lora`, with random bf16 weights drawn on the GPU, and as many of their layers as fit the card.
Every arm is a process of its own. A part takes at most `BUDGET_S` seconds: arms that do not fit into the rest are in
the table as not run, and arms that do not fit the memory as out of memory.

Numbers are medians of the steps from the third on, with the minimum and the maximum. The first two steps, which
compile, and the start of the process have columns of their own. `waiting` is the share of the counted steps that waited
for data, `free` the minimum share of the card that was free after a step, `pieces` the micro-batches of a step, and
`tokens` the new tokens of a reply. TRL's micro-batches hold as many samples as fit, tried from large to small;
gradients are accumulated to the batch.

**MFU** is operations per second over the peak of the data sheet (`learning.engines.fsdp.costs`). Operations are those
of forward and backward passes that the samples need: attention within documents, logits of targets only. Recomputed
operations do not count, nor gradients of frozen weights, nor generation. Tokens and screens with which several
samples of a step begin count once, although micro-batches compute them each. `MFU apart` counts them in each sample, as
if samples shared nothing: it compares with other trainers' numbers, and no bar uses it. TRL's MFU is that of the same
samples.

`sft` trains on batches of 16 samples with screens of 640 x 480, 1024 x 640 and 1280 x 800. `ours` has the defaults of a
GPU with `token_cap` 8192, `ours auto` fills the card, and `ours 1x80` has what `flywheel plan` chooses for a card of
80 GB with 8-bit moments. `trl bf16` trains without activation checkpointing. `generation` answers 16
prompts of a screen of 1280 x 800 with 64 tokens; `later` steps continue trajectories of four steps. `grpo` answers two
prompts eight times each with 64 tokens and trains on the replies, each step with the newest weights, in one process on
both sides. `baseline.json` has the numbers of an earlier commit; `--keep` writes this run's numbers in the same form.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from subprocess import run
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu._device import Row, chosen, device_name
from benchmarks.gpu.real.arms import FAILED, Budget, row_of, run_arms
from benchmarks.gpu.real.parts import PARTS, WORKS, Baseline, arms_of, bars_of
from benchmarks.gpu.real.scale import GEOMETRY, scale_of
from benchmarks.harness import Bar, finish
from benchmarks.trl.running import ROOT
from benchmarks.trl.workload import write_workload
from learning.engines.fsdp.costs import peak_of
from tasks.running.console import out

BUDGET_S = 515.0
"""Seconds of a part; its command, with imports and the end of the process, stays below 540."""
BASELINE = Path(__file__).with_name("baseline.json")
KEPT = ("part", "arm", "setting", "state", "samples/s", "min", "max", "MFU", "MFU apart", "peak GiB")


def main(words: Sequence[str] | None = None) -> int:
    """Print a table for each part; return 1 if a bar is missed or an arm failed, 0 without a GPU."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.real", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--keep", type=Path, metavar="PATH", help="write the numbers as a baseline")
    options = chosen("", parser, words)
    if options is None:
        return 0
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {sorted(unknown)[0]!r}: one of {', '.join(PARTS)}")
    tables, bars = measured(options, [part for part in PARTS if part in (options.parts or PARTS)])
    rows = [row for table in tables for row in table]
    if options.keep is not None:
        keep(options.keep, rows, device_name(options.device))
    failed = any(row["state"].startswith(FAILED) for row in rows)
    return max(finish("gpu real", rows, bars, options, tables), int(failed))


def measure(options: argparse.Namespace) -> tuple[list[Row], list[Bar]]:
    """Return the rows and the bars of all parts."""
    tables, bars = measured(options, list(PARTS))
    return [row for table in tables for row in table], bars


def measured(options: argparse.Namespace, parts: Sequence[str]) -> tuple[list[list[Row]], list[Bar]]:
    """Return a table of each part, and the bars; there are none on a CPU."""
    card, baseline = device_name(options.device), Baseline.of(BASELINE)
    tables, bars = list[list[Row]](), list[Bar]()
    with TemporaryDirectory(prefix="flywheel-real-") as folder:
        for part in parts:
            rows = part_rows(part, Path(folder) / PARTS[part], options, card, baseline)
            tables.append(rows)
            if options.device == "cuda":
                own, lines = bars_of(part, rows, card, baseline)
                bars += own
                for line in lines:
                    out().print(line)
    return tables, bars


def part_rows(part: str, folder: Path, options: argparse.Namespace, card: str, baseline: Baseline) -> list[Row]:
    """Run the arms of one part within its budget."""
    budget, name = Budget(BUDGET_S), PARTS[part]
    scale = scale_of(name, options.device, options.short)
    folder.mkdir(exist_ok=True)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:  # the GPU is then free again
        works = apart.submit(write_workload, folder, [WORKS[part]] if part in WORKS else [], scale).result()
    arms = arms_of(part, folder, works, scale, options.short)
    attempts = run_arms(arms, budget)
    known = [one.numbers for one in attempts if one.numbers.get("operations")]
    counts = [_counts(known, kind) for kind in ("operations", "apart")]
    layers = f"{scale.model['layers']} of {GEOMETRY[name]['layers']}" if options.device == "cuda" else "tiny"
    rows = list[Row]()
    for arm, tried in zip(arms, attempts, strict=True):
        row = {"device": card, "layers": layers} | row_of(arm, tried, peak_of(card), *counts)
        rows.append(row | {f"times {baseline.commit}": baseline.times(row, card)})
    return rows


def _counts(known: Sequence[dict[str, Any]], kind: str) -> list[float]:
    """Return the operations of each step, which are those of all arms: of ours that made all steps.

    Replies of GRPO differ between arms in length, so its steps take the median of ours.
    """
    return [median(step) for step in zip(*(one[kind] for one in known), strict=False)]


def keep(path: Path, rows: Sequence[Row], card: str) -> None:
    """Write the numbers of a run as a baseline."""
    commit = run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    content = {
        "commit": commit.stdout.strip(),
        "card": card,
        "date": datetime.now(UTC).date().isoformat(),
        "rows": [{name: row[name] for name in KEPT} for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
