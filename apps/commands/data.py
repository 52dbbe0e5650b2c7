"""Implement `flywheel data`: export and import trajectories in other projects' formats."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.options import (
    AsJson,
    ConfigFile,
    LicenseName,
    Overrides,
    ids_of,
    iteration_range,
    open_lake,
    print_json,
    print_line,
    print_note,
    resolve,
    sweep_exports,
)
from schemas.failure import UsageError

if TYPE_CHECKING:
    from curation.converters.format import Format
    from curation.redaction import Redactor
    from schemas.config import Config
    from storage.lake import Lake
    from tasks.exchange.export import Reads

FormatName = Annotated[
    str, typer.Option("--format", metavar="NAME", help="Format, such as agentnet, or a dotted path.")
]


def export(
    name: FormatName,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new or empty folder.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    iterations: Annotated[
        str | None, typer.Option(metavar="A:B", help="Iterations from A to B - 1; all if not given.")
    ] = None,
    route: Annotated[str | None, typer.Option(help="Only trajectories with this route: sft, ct, rl, ...")] = None,
    ids: Annotated[
        Path | None,
        typer.Option("--ids", metavar="FILE", help="Only the ids in a file, one a line; - for standard input."),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of coordinates, if the format has several.")] = None,
    dialect: Annotated[str | None, typer.Option(help="Text form of actions, if the format has several.")] = None,
    images_at: Annotated[
        str, typer.Option("--images-at", metavar="PREFIX", help="Prefix of the images' names, for Label Studio.")
    ] = "",
    redact: Annotated[
        bool | None,
        typer.Option(
            "--redact/--no-redact",
            help="Remove secrets and personal data; on by default, except for formats that are imported back.",
        ),
    ] = None,
    license_name: LicenseName = "",
    as_json: AsJson = False,
) -> None:
    """Write stored trajectories in another project's format, without secrets and personal data."""
    from curation.converters.format import FORMATS
    from curation.redaction import Redactor
    from schemas.tables.verdict import ROUTES
    from tasks.exchange.export import ALL, export_trajectories
    from tasks.shared.cards import check_license

    check_license(license_name)
    form = FORMATS.class_of(name)(unit, dialect)
    if route is not None and route not in ROUTES:
        raise UsageError(f"`--route {route}`: there is no such route.", f"One of {', '.join(ROUTES)}.")
    resolved = resolve(config, overrides)
    lake = open_lake(resolved)
    redactor = Redactor() if redact or (redact is None and not form.comes_home) else None
    reader = screen_reader(resolved, lake) if redactor else None
    chosen, named = iteration_range(iterations) or ALL, ids_of(ids) if ids else None
    sweep_exports(to)
    routes = export_trajectories(
        resolved, lake, form, to, chosen, route, images_at, redactor, reader, license_name, named
    )
    _show_export(routes, form, to, route is not None, redactor, as_json)


def _show_export(
    routes: Counter[str], form: "Format", to: Path, chosen: bool, redactor: "Redactor | None", as_json: bool
) -> None:
    """Prints the export's counts and notes; `chosen` is whether a route was requested."""
    from common.text import counted

    count, others = routes.total(), routes.total() - routes["sft"]
    if not chosen and others:
        what = f"{others:,} of {counted(count, 'trajectory', 'trajectories')}"
        print_note(f"the filter did not accept {what}; `--route sft` exports the training data.")
    for note in form.notes:
        print_note(f"{note}")
    if redactor:
        _report_redacted(redactor)
    if as_json:
        written: dict[str, Any] = {"trajectories": count, "routes": dict(sorted(routes.items()))}
        print_json(
            {
                **written,
                "redacted": redactor.numbers() if redactor else None,
                "format": form.name,
                "steps_as_text": form.as_text,
                "unit": form.unit,
                "directory": str(to.absolute()),
            }
        )
    else:
        listed = ", ".join(f"{name} {number:,}" for name, number in sorted(routes.items()))
        print_line(f"{counted(count, 'trajectory', 'trajectories')} in {to} ({listed}), coordinates in {form.unit}")


def screen_reader(config: "Config", lake: "Lake") -> "Reads | None":
    """Makes the reader of screenshots without element lists, if `annotate.reader` names one; the results are cached."""
    from models.readers import reader_class

    if reader_class(config.annotate.reader) is None:
        return None

    from tasks.annotate import read_screens

    return lambda steps, pngs: read_screens(config, lake, steps, pngs)


def _report_redacted(redactor: "Redactor") -> None:
    """Prints the numbers of redactions and of screenshots without known text, if any, to standard error."""
    from common.text import counted

    if redactor.texts or redactor.regions:
        kinds = ", ".join(f"{kind} {number:,}" for kind, number in sorted(redactor.texts.items()))
        boxes = f"{counted(redactor.regions, 'box', 'boxes')} of {counted(len(redactor.painted), 'image')}"
        print_note(f"taken out of texts: {kinds or 'nothing'}; painted over: {boxes}.")
    if redactor.unread:
        what = counted(len(redactor.unread), "image")
        print_note(f"no text is known for {what}, exported as is; annotate.reader=rapidocr reads it.")


def import_(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="File or folder in the format.")],
    name: FormatName,
    overrides: Overrides = None,
    config: ConfigFile = None,
    unit: Annotated[str | None, typer.Option(help="Unit of coordinates for records without one.")] = None,
    images: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the records' images.")] = None,
    demonstrations: Annotated[
        bool,
        typer.Option(
            "--demonstrations", help="Treat trajectories without an outcome as successes, also of an earlier import."
        ),
    ] = False,
    instruction: Annotated[str, typer.Option(metavar="TEXT", help="Instruction of recordings without one.")] = "",
    license_name: Annotated[
        str, typer.Option("--license", metavar="ID", help="Licence of recordings without one, such as cc-by-4.0.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Import other projects' trajectories into the lake: gated, routed, and used by the next training."""
    from apps.calling import call
    from curation.converters.files import ImportSource
    from curation.converters.format import FORMATS
    from curation.converters.search import notes_of
    from curation.converters.units import UNITS
    from schemas.tables.stage import HEADLINE
    from tasks.exchange.importing import Request, check_import
    from tasks.running.progress_lines import progress_lines
    from tasks.shared.cards import check_license

    check_license(license_name)
    resolved = resolve(config, overrides)
    FORMATS.class_of(name)
    if unit is not None and unit not in UNITS:
        raise UsageError(f"`--unit {unit}`: there is no such unit.", f"One of {', '.join(UNITS)}.")
    ImportSource(path, images, unit)
    request = Request(
        format=name,
        path=path.absolute(),
        unit=unit,
        images=images.absolute() if images else None,
        demonstrations=demonstrations,
        instruction=instruction,
        license=license_name,
        video=resolved.video,
    )
    with progress_lines(f"Checking {path}, then importing it"):
        checked = check_import.fn(resolved, request)  # before Prefect's server starts
        for note in notes_of(checked.left_out):
            print_note(note)
        done = call("flows.data.import_data", resolved, request, checked.name)
    if as_json:
        left_out = [file for file, _ in checked.left_out]
        print_json({**{key: value for key, value in done.items() if key != HEADLINE}, "left_out": left_out})
    else:
        routes = ", ".join(
            f"{route} {n}{rejections(done['gates'].get(route, {}))}" for route, n in sorted(done["routes"].items())
        )
        print_line("; ".join(part for part in (f"{done['source']}: {done[HEADLINE]}", routes, news(done)) if part))
        for line in (*explained(done), *in_words(done.get("demonstrations"))):
            print_line(line)


def news(done: Mapping[str, Any]) -> str:
    """Describes an import that wrote no trajectory: it finished an interrupted one, or had nothing to do."""
    if done["trajectories"] or done.get("recordings"):
        return ""
    if done["iteration"] is not None:
        return "the interrupted import is finished now"
    accepted = done.get("demonstrations", {}).get("accepted", 0)
    return "" if done["decisions"] or accepted else "nothing new"


USES = {
    "ct": "training uses their screens, and does not imitate them",
    "rl": "training does not imitate them; groups and statistics count them",
    "quarantine": "no training uses them until a judge or a reviewer decides",
    "none": "no training uses them",
}
"""Uses of the routes of trajectories that the filter did not accept."""


def explained(done: Mapping[str, Any]) -> list[str]:
    """Explains the routes of an import that are not imitated, and how to change them; empty if there are none."""
    routes = [(route, count) for route, count in sorted(done["routes"].items()) if route in USES and count]
    if not routes:
        return []
    lines = [f"{route} {count:,}: {USES[route]}." for route, count in routes]
    if without := done.get("without_outcome", 0):
        records = "1 record has" if without == 1 else f"{without:,} records have"
        lines.append(f"{records} no outcome. For successes, repeat the command with --demonstrations.")
    found = f"flywheel trajectories --iteration={done['iteration']} --route {routes[0][0]}"
    lines.append(f"List them: `{found}`.")
    lines.append(f"Accept them: `{found} --ids | flywheel trajectories decide accept --ids -`.")
    return lines


def in_words(accepted: Mapping[str, Any] | None) -> list[str]:
    """Describes trajectories of earlier imports that became successes; empty if nothing was asked for."""
    from common.text import counted

    if accepted is None:
        return []
    lines = list[str]()
    if accepted["accepted"]:
        count = counted(accepted["accepted"], "trajectory", "trajectories")
        lines.append(f"{count} accepted as successes.")
    if left := accepted["rejected"]:
        lines.append(f"{sum(left.values()):,} not accepted, because a gate rejects them{rejections(left)}.")
    if accepted["iterations"]:
        found = f"flywheel trajectories --iteration={accepted['iterations'][0]} --outcome success --ids"
        lines.append(f"To reject successes: `{found} | flywheel trajectories decide reject --ids -`.")
    return lines


def rejections(gates: Mapping[str, int]) -> str:
    """Lists the gates that rejected a route's trajectories, most trajectories first; empty without a rejection."""
    listed = ", ".join(f"{gate} {n}" for gate, n in sorted(gates.items(), key=lambda one: (-one[1], one[0])))
    return f" ({listed})" if listed else ""


import_.__name__ = "import"


VERBS = (export, import_)
