"""Keep measured values as JSON in docs/results, make docs/measurements.md from them, and find regressions.

`python -m benchmarks.results [--check]` writes the page; with `--check` it fails where the page is out of date.
"""

import argparse
import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGE = ROOT / "docs" / "measurements.md"
WORSE = 0.05
"""Share by which a value may be worse than the stored one."""
HEAD = RESULTS / "head.txt"
NOT_RECORDED = "not recorded"
Cell = str | float | int | None


class Measured(BaseModel):
    """The base of what a file of docs/results holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Spread(Measured):
    """An interval of a value, or its least and most."""

    low: float
    high: float
    over: str
    """What varies: `trajectories`, `run seeds`, `rounds`, ..."""


class MeasuredValue(Measured):
    """One number."""

    name: str
    value: float | None
    unit: str = ""
    spread: Spread | None = None
    bar: float | None = None
    better: Literal["higher", "lower"] | None = None

    def reached(self) -> bool | None:
        """Return whether the value reaches its bar, None without a bar or a value."""
        if self.bar is None or self.value is None or self.better is None:
            return None
        return self.value >= self.bar if self.better == "higher" else self.value <= self.bar


class Breakdown(Measured):
    """A table of the same run, such as by task."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


class MeasuredRun(Measured):
    """One run of a benchmark."""

    title: str = ""
    command: str | None
    date: str | None
    commit: str | None
    machine: str | None
    notes: str = ""
    values: tuple[MeasuredValue, ...] = ()
    tables: tuple[Breakdown, ...] = ()


class BenchmarkResult(Measured):
    """The runs of one benchmark, newest first."""

    benchmark: str
    title: str
    removed: str | None = None
    """The last commit that has the program; None while the program is here."""
    runs: tuple[MeasuredRun, ...]


class Regression(NamedTuple):
    """A value that is worse than the stored one."""

    name: str
    now: float
    stored: float
    machine: str
    date: str


def path_of(name: str) -> Path:
    """Return the file of a benchmark."""
    return RESULTS / f"{name.replace(' ', '_')}.json"


def read(path: Path) -> BenchmarkResult:
    """Read and check a file of docs/results."""
    return BenchmarkResult.model_validate_json(path.read_text())


def regressions(name: str, values: Sequence[MeasuredValue], short: bool) -> list[Regression]:
    """Compare values with the newest stored ones of the same names, from runs with or without `--short`."""
    if not path_of(name).exists():
        return []
    stored: dict[str, tuple[MeasuredValue, MeasuredRun]] = {}
    for run in reversed(read(path_of(name)).runs):
        if ("--short" in (run.command or "").split()) == short:
            stored |= {one.name: (one, run) for one in run.values}
    found = list[Regression]()
    for one in values:
        before, run = stored.get(one.name, (None, None))
        if before is None or run is None or before.value is None or one.value is None:
            continue
        limit = before.value * (1 - WORSE if one.better == "higher" else 1 + WORSE)
        if not (one.value >= limit if one.better == "higher" else one.value <= limit):
            found.append(
                Regression(one.name, one.value, before.value, run.machine or NOT_RECORDED, run.date or NOT_RECORDED)
            )
    return found


def record(name: str, values: Sequence[MeasuredValue], machine: str) -> Path:
    """Store values as the newest run of a benchmark, in place of an earlier run of its command on such a machine."""
    module = Path(sys.argv[0]).resolve().relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__main__")
    options = re.sub(r"--(?:record|against|json[ =]\S+) ?", "", shlex.join(sys.argv[1:]))
    command = f"python -m {module.replace('/', '.')} {options}".strip()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    finite = [one if math.isfinite(one.value or 0.0) else one.model_copy(update={"value": None}) for one in values]
    run = MeasuredRun(
        command=command, date=datetime.now(UTC).date().isoformat(), commit=commit.stdout.strip() or None,
        machine=machine, values=tuple(finite),
    )  # fmt: skip
    before = read(path_of(name)) if path_of(name).exists() else BenchmarkResult(benchmark=name, title=name, runs=())
    kept = tuple(one for one in before.runs if (one.command, one.machine) != (command, machine))
    write(before.model_copy(update={"runs": (run, *kept)}))
    return path_of(name)


def write(result: BenchmarkResult) -> None:
    """Write a file of docs/results."""
    content = result.model_dump(exclude_defaults=True)
    path_of(result.benchmark).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def page() -> str:
    """Return the text of docs/measurements.md."""
    results = sorted(map(read, RESULTS.glob("*.json")), key=lambda one: (one.removed is not None, one.title.lower()))
    lines = HEAD.read_text().splitlines()
    for result in results:
        lines += ["", f"## {result.title}", ""]
        if result.removed:
            lines += [f"The program is in the history, at commit `{result.removed}`.", ""]
        for run in result.runs:
            lines += _run_lines(run)
        lines.pop()
    return "\n".join(lines) + "\n"


def _run_lines(run: MeasuredRun) -> Iterator[str]:
    facts = [f"`{run.command}`" if run.command else "", run.date or "date not recorded"]
    facts += [run.machine or "machine not recorded", f"commit `{run.commit}`" if run.commit else ""]
    title = f"**{run.title}.**" if run.title else ""
    yield from (" ".join(filter(None, (title, ", ".join(filter(None, facts)) + ".", run.notes))), "")
    if run.values:
        columns = {
            "what": [one.name for one in run.values],
            "value": [_value(one) for one in run.values],
            "spread": [_spread(one) for one in run.values],
            "bar": [_bar(one) for one in run.values],
        }
        used = {name: cells for name, cells in columns.items() if any(cells)}
        yield from _table(tuple(used), list(zip(*used.values(), strict=True)))
    for table in run.tables:
        if not table.columns[0].strip():
            yield from _table((table.title, *table.columns[1:]), table.rows)
        else:
            yield from ([f"{table.title}:", ""] if table.title else [])
            yield from _table(table.columns, table.rows)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield f"| {' | '.join('' if cell is None else str(cell) for cell in row)} |"
    yield ""


def _number(value: float) -> str:
    return f"{value:,.10g}" if abs(value) >= 1000 else f"{value:.4g}"


def _value(one: MeasuredValue) -> str:
    return "" if one.value is None else f"{_number(one.value)} {one.unit}".rstrip()


def _spread(one: MeasuredValue) -> str:
    if one.spread is None:
        return ""
    unit = f" {one.unit}" if one.value is None and one.unit else ""
    return f"{_number(one.spread.low)} to {_number(one.spread.high)}{unit}, {one.spread.over}"


def _bar(one: MeasuredValue) -> str:
    if one.bar is None:
        return ""
    met = "" if one.reached() is None else ", met" if one.reached() else ", **missed**"
    return f"{'at least' if one.better == 'higher' else 'at most'} {_number(one.bar)}{met}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where the page is out of date; write nothing")
    if not parser.parse_args(arguments).check:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        print(f"{PAGE.relative_to(ROOT)} is out of date. Run `python -m benchmarks.results`.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
