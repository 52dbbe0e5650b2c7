"""`flywheel status`: where the wheel stands, for people and for programs."""

from typing import Any

from rich.console import Console
from rich.table import Table

from apps.options import LAPTOP, AsJson, ConfigFile, Words, print_json, resolve

KEYS = ("iteration", "policy", "success", "ci", "explorer", "trajectories", "promoted", "wall_s", "stages_s")
"""The fixed interface of `--json`; an iteration is listed there once it is finished."""
SPARKS = "▁▂▃▄▅▆▇█"
BAR_WIDTH = 20


def status(words: Words = None, config: ConfigFile = LAPTOP, as_json: AsJson = False) -> None:
    """Show iterations, success, data and the champion."""
    from apps.lakes import open_lake

    lake = open_lake(resolve(config, words))
    if as_json:
        print_json(status_of(lake))
    else:
        show_status(lake)


def status_of(lake: Any) -> dict[str, Any]:
    """What `flywheel status --json` prints."""
    from apps.lakes import champion, is_finished, laps

    finished = [{key: lap[key] for key in KEYS} for lap in laps(lake) if is_finished(lap)]
    return {"lake": lake.uri, "champion": champion(lake), "iterations": finished}


def show_status(lake: Any) -> None:
    """The table for people, an unfinished iteration included."""
    from apps.lakes import champion, laps

    rows = laps(lake)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("iteration", "success", "", "95 %", "explorer", "trajectories", "seconds", "policy", ""):
        table.add_column(name, justify="left" if name in ("", "policy") else "right", no_wrap=True)
    for lap in rows:
        table.add_row(*_cells(lap))
    console = Console(highlight=False)
    console.print(table if rows else "No iteration has begun yet.")
    trend = sparkline([lap["success"] for lap in rows if lap["success"] is not None])
    console.print(f"\nchampion {champion(lake) or 'none'}   success {trend or '-'}   lake {lake.uri}", soft_wrap=True)


def bar(share: float | None, width: int = BAR_WIDTH) -> str:
    """A share in [0, 1] as a bar of eighths of characters."""
    eighths = round((share or 0.0) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width, "·")


def sparkline(shares: list[float]) -> str:
    """Shares in [0, 1] as one small column each."""
    return "".join(SPARKS[min(len(SPARKS) - 1, int(share * len(SPARKS)))] for share in shares)


def _cells(lap: dict[str, Any]) -> list[str]:
    from apps.lakes import is_finished

    low, high = lap["ci"] or (None, None)
    interval = "" if low is None else f"{low:.2f} to {high:.2f}"
    word = ("[green]promoted[/green]" if lap["promoted"] else "kept the champion") if is_finished(lap) else "under way"
    return [
        str(lap["iteration"]),
        _number(lap["success"]),
        f"[cyan]{bar(lap['success'])}[/cyan]",
        interval,
        _number(lap["explorer"]),
        str(lap["trajectories"]),
        f"{lap['wall_s']:.0f}",
        lap["policy"] or "-",
        word,
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
