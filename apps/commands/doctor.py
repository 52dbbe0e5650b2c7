"""`flywheel doctor`: what a run needs, checked before anything is spent; each check says what to do."""

from schemas.check import Check
from tasks.shared.console import out


def show_checks(checks: list[Check]) -> None:
    """The checks for people."""
    console = out()
    for check in checks:
        word = "[green]ok  [/green]" if check.ok else "[red]FAIL[/red]"
        console.print(f"{word} {check.name:<24} {check.detail}")
        if check.hint:
            console.print(f"{'':<29} [dim]{check.hint}[/dim]")
