"""Lists of tasks."""

from pathlib import Path

_ROOT = Path(__file__).parent / "splits"


def list_splits() -> list[str]:
    """Names of the lists."""
    return sorted(path.stem for path in _ROOT.glob("*.txt"))


def resolve_split(name: str) -> set[str]:
    """The ids of a list."""
    return {line for line in (_ROOT / f"{name}.txt").read_text().splitlines() if line and not line.startswith("#")}
