"""Implement `flywheel doctor`: check the requirements of a run before it starts; each check has a hint."""

from rich.text import Text

from schemas.check import CheckReport
from tasks.running.console import out


def show_checks(checks: list[CheckReport]) -> None:
    """The checks for people."""
    console = out()
    for check in checks:
        word = Text("ok  ", "green") if check.ok else Text("FAIL", "red")
        first, *others = check.detail.splitlines() or [""]
        console.print(word, Text(f"{check.name:<24} {first}"))
        for line in others:
            console.print(Text(f"{'':<29} {line}"))
        if check.hint:
            console.print(Text(f"{'':<29} {check.hint}", "dim"))
