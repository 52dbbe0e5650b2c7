"""`flywheel doctor`: what a run needs, checked before anything is spent; each check says what to do."""

from rich.console import Console

from schemas.check import Check


def show_checks(checks: list[Check]) -> None:
    """The checks for people."""
    console = Console(highlight=False)
    for check in checks:
        word = "[green]ok  [/green]" if check.ok else "[red]FAIL[/red]"
        console.print(f"{word} {check.name:<24} {check.detail}", soft_wrap=True)
        if check.hint:
            console.print(f"{'':<29} [dim]{check.hint}[/dim]", soft_wrap=True)
