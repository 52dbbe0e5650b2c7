"""Maintain a lake outside an iteration."""

from schemas.config import Config
from tasks.running.boundary import boundary
from tasks.running.console import print_line
from tasks.running.run import run_of


@boundary("maintain")
def maintain_lake(config: Config) -> dict[str, int]:
    """Run `storage.lake.Lake.maintain`, and return the size of the lake in bytes before and after."""
    lake = run_of(config, create=False).lake
    before = lake.size_bytes()
    lake.maintain()
    after = lake.size_bytes()
    print_line(f"maintain: {before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB after")
    return {"bytes_before": before, "bytes_after": after}
