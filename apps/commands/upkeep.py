"""Implement `flywheel maintain`: compact files and remove unneeded ones, as each iteration does at its end."""

import typer

from apps.options import AsJson, ConfigFile, Overrides, print_json, resolve


def maintain(overrides: Overrides = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Merge a lake's small files, and remove those that no pinned or recent version needs (`lake.keep_hours`)."""
    from apps.lakes import open_lake

    lake = open_lake(resolve(config, overrides))
    before = lake.size_bytes()
    lake.maintain()
    after = lake.size_bytes()
    if as_json:
        print_json({"bytes_before": before, "bytes_after": after})
    else:
        typer.echo(f"{before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB now")


VERBS = (maintain,)
