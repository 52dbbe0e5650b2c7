"""What every benchmark shares: the two options, the facts of the machine, bars with a target, JSON and a table."""

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

from tasks.running.console import out

_LOAD_BEFORE = [round(load, 2) for load in os.getloadavg()]


@dataclass(frozen=True, slots=True)
class Bar:
    """A measured number and the one it must reach."""

    name: str
    value: float
    bar: float
    better: Literal["higher", "lower"]

    @property
    def ok(self) -> bool:
        """Whether it is reached."""
        return self.value >= self.bar if self.better == "higher" else self.value <= self.bar


def options(description: str) -> argparse.Namespace:
    """The command line of every benchmark: `short` (bool) and `json` (a path or None)."""
    return add_options(argparse.ArgumentParser(description=description)).parse_args()


def add_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The same two, added to a benchmark's own."""
    parser.add_argument("--short", action="store_true", help="a quicker, coarser run")
    parser.add_argument("--json", type=Path, help="where to write machine, rows and bars")
    return parser


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
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
    path: Path | None,
    tables: Sequence[Sequence[Mapping[str, Any]]] | None = None,
) -> int:
    """Prints rows and bars, writes them as JSON if there is a path; the exit status: 0 if all bars are met, else 1.

    Args:
        name: the benchmark's.
        rows: what was measured.
        bars: what must be reached.
        path: of the JSON.
        tables: the rows as people read them, each with columns of its own; one table of all rows if not given.
    """
    for number, table in enumerate([rows] if tables is None else tables):
        say(table, "" if number else name)
    console = out()
    console.print(_bars_table(bars))
    if path is not None:
        content = {"machine": machine(), "rows": list(rows), "bars": [asdict(bar) | {"ok": bar.ok} for bar in bars]}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_finite(content), indent=1, allow_nan=False) + "\n")
        console.print(f"written to {path}")
    return 0 if all(bar.ok for bar in bars) else 1


def say(rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Prints rows as a table; lists and dictionaries in them are for the JSON only."""
    table = Table(title=title or None)
    columns = [key for key, value in (rows[0] if rows else {}).items() if not isinstance(value, list | dict)]
    for column in columns:
        table.add_column(column, justify="right" if isinstance(rows[0][column], int | float) else "left")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    out().print(table)


def _finite(value: Any) -> Any:
    """The same with null for what JSON has no number for: no plan, no interval."""
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
