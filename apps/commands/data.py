"""`flywheel data`: trajectories in the formats of others, out of the lake and into it."""

from pathlib import Path
from typing import Annotated

import typer

from apps.options import AsJson, ConfigFile, Overrides, iteration_range, print_json, resolve, say
from schemas.failure import UsageError

FormatName = Annotated[str, typer.Option("--format", metavar="NAME", help="Such as agentnet, or a dotted path.")]


def export(
    name: FormatName,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new or empty folder.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    iterations: Annotated[str | None, typer.Option(metavar="A:B", help="B left out; all if not given.")] = None,
    route: Annotated[str | None, typer.Option(help="Only what the filter sent there: sft, ct, rl, ...")] = None,
    unit: Annotated[str | None, typer.Option(help="Of coordinates, where the format has several.")] = None,
    dialect: Annotated[str | None, typer.Option(help="Of actions, where the format has several.")] = None,
    images_at: Annotated[
        str, typer.Option("--images-at", metavar="PREFIX", help="Before pictures' names: where Label Studio has them.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Write stored trajectories in a format of others."""
    from apps.lakes import open_lake
    from curation.converters.format import FORMATS
    from schemas.tables.verdict import ROUTES
    from schemas.text import counted
    from tasks.exchange.export import ALL, export_trajectories

    form = FORMATS.class_of(name)(unit, dialect)
    if route is not None and route not in ROUTES:
        raise UsageError(f"`--route {route}`: there is no such route.", f"One of {', '.join(ROUTES)}.")
    lake = open_lake(resolve(config, overrides))
    routes = export_trajectories(lake, form, to, iteration_range(iterations) or ALL, route, images_at)
    count, others = routes.total(), routes.total() - routes["sft"]
    if route is None and form.trained_on and others:
        what = f"{others:,} of {counted(count, 'trajectory', 'trajectories')}"
        say(f"flywheel: the filter accepted not {what}; `--route sft` is what to train on.", err=True)
    if as_json:
        written = {"trajectories": count, "routes": dict(sorted(routes.items()))}
        print_json({**written, "format": form.name, "unit": form.unit, "directory": str(to.absolute())})
    else:
        listed = ", ".join(f"{name} {number:,}" for name, number in sorted(routes.items()))
        say(f"{counted(count, 'trajectory', 'trajectories')} in {to} ({listed}), coordinates in {form.unit}")


def import_(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file or folder of the format.")],
    name: FormatName,
    overrides: Overrides = None,
    config: ConfigFile = None,
    unit: Annotated[str | None, typer.Option(help="Of coordinates, where a record does not say.")] = None,
    images: Annotated[Path | None, typer.Option(metavar="DIR", help="Where pictures are named from.")] = None,
    demonstrations: Annotated[
        bool, typer.Option("--demonstrations", help="What does not say how it ended was a success.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring trajectories of others into the lake: gated, routed, and trained on by the next training."""
    from apps.calling import call
    from curation.converters.files import Source
    from curation.converters.format import FORMATS
    from curation.converters.units import UNITS
    from tasks.exchange.bring import Request

    resolved = resolve(config, overrides)
    FORMATS.class_of(name)
    if unit is not None and unit not in UNITS:
        raise UsageError(f"`--unit {unit}`: there is no such unit.", f"One of {', '.join(UNITS)}.")
    Source(path, images, unit)
    request = Request(
        format=name,
        path=path.absolute(),
        unit=unit,
        images=images.absolute() if images else None,
        demonstrations=demonstrations,
    )
    done = call("flows.import_data.import_data", resolved, request)
    if as_json:
        print_json({key: value for key, value in done.items() if key != "say"})
    else:
        routes = ", ".join(f"{route} {n}" for route, n in sorted(done["routes"].items()))
        nothing = "" if done["decisions"] else "nothing new"
        say("; ".join(part for part in (f"{done['source']}: {done['say']}", routes or nothing) if part))


import_.__name__ = "import"


VERBS = (export, import_)
