"""`flywheel status`: where the wheel stands, for people and for programs."""

from typing import Any

from rich.table import Table

from apps.lakes import begun_iterations, is_finished
from schemas.text import counted
from storage.lake import Lake
from tasks.shared.console import out
from tasks.shared.learnt import learnt_from_people
from tasks.shared.policies import reigning

KEYS = (
    "iteration",
    "policy",
    "success",
    "ci",
    "explorer",
    "trajectories",
    "promoted",
    "wall_s",
    "stages_s",
    "verified",
    "orchestration_s",
    "verified_fixed_mix",
    "held_out",
)
"""The fixed interface of `--json`; an iteration is listed there once it is finished."""
SPARKS = "▁▂▃▄▅▆▇█"
BAR_WIDTH = 10


def status_of(lake: Lake) -> dict[str, Any]:
    """What `flywheel status --json` prints."""
    finished = [{key: row[key] for key in KEYS} for row in begun_iterations(lake) if is_finished(row)]
    people = [one.shown for one in learnt_from_people(lake)]
    return {"lake": lake.uri, "champion": _champion(lake), "iterations": finished, "people": people}


def show_status(lake: Lake) -> None:
    """The table for people, an unfinished iteration included; it fits 80 columns."""
    rows = begun_iterations(lake)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in ("iteration", "success", "", "95 %", "made", "seconds", "policy", "outcome"):
        table.add_column(name, justify="left" if name in ("", "policy", "outcome") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    console = out()
    console.print(table if rows else "No iteration has begun yet.")
    trend = sparkline([row["success"] for row in rows if row["success"] is not None])
    explorer = next((row["explorer"] for row in reversed(rows)), None)
    text = f"\nsuccess {trend or '-'}   explorer {_number(explorer)}   champion {_champion(lake) or 'none'}"
    own = [row["verified"] for row in rows if row["verified"]]
    fixed = [row["verified_fixed_mix"] for row in rows if row["verified_fixed_mix"]]
    unseen = [row["held_out"] for row in rows if row["held_out"]]
    if own:
        text += f"\nown trajectories that succeed, P(V=1 | iteration) {_trend(own, 'rate')}"
    if fixed:
        text += f"\nthe same of a fixed mix of {counted(fixed[-1]['tasks'], 'task')} {_trend(fixed, 'rate')}"
    if unseen:
        text += f"\ntasks that are never trained on {_trend(unseen, 'success')}"
    text += "\nin brackets: 95 % intervals over trajectories"
    console.print(f"{text}\nlake {lake.uri}")


def bar(share: float | None, width: int = BAR_WIDTH) -> str:
    """A share in [0, 1] as a bar of eighths of characters."""
    eighths = round((share or 0.0) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width, "·")


def sparkline(shares: list[float]) -> str:
    """Shares in [0, 1] as one small column each."""
    return "".join(SPARKS[min(len(SPARKS) - 1, int(share * len(SPARKS)))] for share in shares)


def _champion(lake: Lake) -> str:
    row = reigning(lake)
    return row.policy_version if row else ""


def _cells(row: dict[str, Any]) -> list[str]:
    low, high = row["ci"] or (None, None)
    outcome = ("[green]promoted[/green]" if row["promoted"] else "kept old") if is_finished(row) else "under way"
    return [
        str(row["iteration"]),
        _number(row["success"]),
        f"[cyan]{bar(row['success'])}[/cyan]",
        "-" if low is None else f"{low:.2f} to {high:.2f}",
        str(row["trajectories"]),
        f"{row['wall_s']:.0f}",
        row["policy"] or "-",
        outcome,
    ]


def _trend(rows: list[dict[str, Any]], key: str) -> str:
    """What the rows hold as columns, and the last of it with its interval."""
    low, high = rows[-1]["ci"]
    return f"{sparkline([row[key] for row in rows])} {rows[-1][key]:.3f} ({low:.2f} to {high:.2f})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
