"""Write the quality page as one file that needs no network: the dashboard's part, with its own styles."""

import os
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from apps.quality.gather import Quality
from apps.report.build import report_folder
from schemas.config import Config
from schemas.table import utc_now
from storage.lake import Lake
from tasks.quality.drift import MEASURES

FILE = "quality.html"


def write_page(config: Config, lake: Lake, found: Quality) -> Path:
    """Writes the result of `quality_of` next to the report and returns the page's path."""
    folder = report_folder(lake)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{FILE}.{os.getpid()}"
    part.write_text(render(config, found), encoding="utf-8")
    return part.replace(folder / FILE)


def render(config: Config, found: Quality) -> str:
    """The page as text; its links open where `flywheel serve` listens."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined
    )
    viewer = f"http://{config.desk.host}:{config.desk.port}"
    return templates.get_template("quality_file.html.jinja").render(
        quality=found,
        measures=tuple(MEASURES),
        viewer=f"{viewer}/trajectory/",
        pages=viewer,
        made_at=utc_now().strftime("%Y-%m-%d %H:%M UTC"),
    )
