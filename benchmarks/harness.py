"""Share the options, the machine's facts, bars with a target, JSON and tables among all benchmarks."""

import argparse
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
from rich.table import Table

from benchmarks.results import RESULTS, MeasuredValue, Regression, record, regressions
from tasks.running.console import out

_LOAD_BEFORE = [round(load, 2) for load in os.getloadavg()]


@dataclass(frozen=True, slots=True)
class Bar:
    """A measured number and the target that it must reach."""

    name: str
    value: float
    bar: float
    better: Literal["higher", "lower"]

    @property
    def ok(self) -> bool:
        """Return whether the target is reached."""
        return self.value >= self.bar if self.better == "higher" else self.value <= self.bar


def options(description: str) -> argparse.Namespace:
    """Parse the options that every benchmark has."""
    return add_options(argparse.ArgumentParser(description=description)).parse_args()


def add_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add these options to a benchmark's own."""
    parser.add_argument("--short", action="store_true", help="a quicker, coarser run")
    parser.add_argument("--json", type=Path, help="write machine, rows and bars to this file")
    parser.add_argument("--against", action="store_true", help="fail where a bar is over 5 %% worse than docs/results")
    parser.add_argument("--record", action="store_true", help="store the bars in docs/results")
    return parser


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_before": _LOAD_BEFORE,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def finish(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    bars: Sequence[Bar],
    chosen: argparse.Namespace,
    tables: Sequence[Sequence[Mapping[str, Any]]] | None = None,
) -> int:
    """Print rows and bars, write them where the options ask for it, and return the exit status.

    Args:
        name: the benchmark's name, which is also its file in docs/results.
        rows: what was measured.
        bars: the targets.
        chosen: the options of `add_options`.
        tables: the rows as tables with columns of their own; one table of all rows if None.

    Returns:
        0 if all bars are met and, with `--against`, no bar is worse than its stored value.
    """
    for number, table in enumerate([rows] if tables is None else tables):
        print_rows(table, "" if number else name)
    console = out()
    console.print(_bars_table(bars))
    if chosen.json is not None:
        content = {"machine": machine(), "rows": list(rows), "bars": [asdict(bar) | {"ok": bar.ok} for bar in bars]}
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(_finite(content), indent=1, allow_nan=False) + "\n")
        console.print(f"written to {chosen.json}")
    values = [MeasuredValue(name=bar.name, value=bar.value, bar=bar.bar, better=bar.better) for bar in bars]
    worse = regressions(name, values, chosen.short) if chosen.against else []
    for one in worse:
        console.print(_regression(one))
    if chosen.record:
        facts = machine()
        path = record(name, values, f"{facts['cpu']}, {facts['usable_cores']} cores, {facts['memory_gib']} GiB")
        console.print(f"stored in {path.relative_to(RESULTS.parents[1])}; run `python -m benchmarks.results`")
    return 0 if all(bar.ok for bar in bars) and not worse else 1


def print_rows(rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Print rows as a table; lists and dictionaries in them are for the JSON only."""
    table = Table(title=title or None)
    columns = [key for key, value in (rows[0] if rows else {}).items() if not isinstance(value, list | dict)]
    for column in columns:
        table.add_column(column, justify="right" if isinstance(rows[0][column], int | float) else "left")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    out().print(table)


def _regression(one: Regression) -> str:
    return f"WORSE: {one.name}: {_cell(one.now)}, stored {_cell(one.stored)} ({one.machine}, {one.date})"


def _finite(value: Any) -> Any:
    """Replace the numbers that JSON does not have by null."""
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _bars_table(bars: Sequence[Bar]) -> Table:
    table = Table(title="bars")
    for column in ("what", "value", "bar", ""):
        table.add_column(column)
    for bar in bars:
        sign = ">=" if bar.better == "higher" else "<="
        table.add_row(bar.name, _cell(bar.value), f"{sign} {_cell(bar.bar)}", "ok" if bar.ok else "MISSED")
    return table


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < math.inf else f"{value:.3g}"
    return "" if value is None else str(value)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
