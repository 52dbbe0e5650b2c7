"""Run every benchmark of one GPU, one after the other: `python -m benchmarks.gpu [--short] [--device cpu] --json PATH`.

Each also runs alone, such as `python -m benchmarks.gpu.train_step`.
"""

from benchmarks.gpu import cost_model, replay, save_stall, train_step
from benchmarks.gpu._device import Row, chosen
from benchmarks.gpu.real import __main__ as real
from benchmarks.harness import Bar, finish

PARTS = {
    "train_step": train_step.measure,
    "cost_model": cost_model.measure,
    "replay": replay.measure,
    "save_stall": save_stall.measure,
    "real": real.measure,
}


def main() -> int:
    """Print a table for each part; return 1 if a bar is missed, 0 without a GPU."""
    options = chosen(__doc__ or "")
    if options is None:
        return 0
    tables, bars = list[list[Row]](), list[Bar]()
    for name, measure in PARTS.items():
        rows, own = measure(options)
        tables.append([{"part": name, **row} for row in rows])
        bars += own
    return finish("gpu", [row for rows in tables for row in rows], bars, options, tables)


if __name__ == "__main__":
    raise SystemExit(main())
