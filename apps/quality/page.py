"""Print quality results, or write them to one file without external resources, in the form of the dashboard's part."""

import os
from collections.abc import Collection
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.text import Text

from apps.quality.gather import ExpectationResult, Quality
from apps.report.build import report_folder
from common.text import harmless
from schemas.config import Config
from schemas.table import utc_now
from storage.lake import Lake
from storage.quality.docs import site_name, site_names
from tasks.quality import MEASURES
from tasks.running.console import make_table, out
from tasks.shared.paths import docs_folder

FILE = "quality.html"
NEWEST = 20
"""Number of printed iterations, which fit a screen."""


def write_page(config: Config, lake: Lake, found: Quality) -> Path:
    """Writes the result of `quality_of` next to the report and returns the page's path."""
    folder = report_folder(lake)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{FILE}.{os.getpid()}"
    part.write_text(render(config, found, site_names(lake, docs_folder(config, lake))), encoding="utf-8")
    return part.replace(folder / FILE)


def render(config: Config, found: Quality, docs: Collection[str] = ()) -> str:
    """Renders the page as text; its links need `flywheel serve`. `docs` are the names of Data Docs."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined
    )
    viewer = f"http://{config.desk.host}:{config.desk.port}"
    return templates.get_template("quality_file.html.jinja").render(
        quality=found,
        measures=tuple(MEASURES),
        viewer=f"{viewer}/trajectory/",
        pages=viewer,
        docs=docs,
        site_name=site_name,
        made_at=utc_now().strftime("%Y-%m-%d %H:%M UTC"),
    )


def print_quality(found: Quality) -> None:
    """Prints the newest iterations, then the failed expectations."""
    console = out()
    if not found.iterations:
        console.print("No quality checks have run yet.")
        return
    table = make_table("<", "checks", "held", "critical", "overridden", "warnings", "broken", "rows", gap=2)
    for row in found.iterations[:NEWEST]:
        critical = Text(str(row.critical), "red" if row.critical else "")
        counts = (row.overridden, row.warnings, row.broken, row.unexpected)
        table.add_row(row.label, str(row.checks), str(row.held), critical, *map(str, counts))
    console.print(table)
    for row in found.results:
        if not row.success:
            console.print(_failure(row), soft_wrap=True)


def _failure(row: ExpectationResult) -> Text:
    colour = "yellow" if row.severity == "warning" or row.overridden else "red"
    seen = f"the check raised an error: {row.error}" if row.error else row.observed
    text = f"  {row.label}  {row.table}: {row.expectation}"
    text += f"\n    {seen}; {row.because}"
    if row.trajectories:
        text += f"\n    trajectories {', '.join(row.trajectories)}"
    elif row.examples:
        text += f"\n    rows {row.examples!s}"
    if row.overridden:
        text += f"\n    overridden by {row.override_by}: {row.override_reason}"
    return Text.assemble((row.severity, colour), harmless(text))
