"""Write the report: gather, draw, and put everything into one file that needs no network."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from apps.options import open_lake
from apps.report import charts
from apps.report.gather import gather
from apps.report.replays import replays
from flywheel import OpenLake
from schemas.config import Config
from schemas.table import utc_now
from storage.lake import Lake
from tasks.running.curve import success_chart
from tasks.shared.paths import work_folder

PAGE = "index.html"
ALL = "window.vegaEmbed = vegaEmbed;"
"""The export of the bundle that the page uses."""


def build_report(config: Config) -> Path:
    """Writes the page of the config's lake and returns its path.

    Raises:
        LakeError: there is no lake.
    """
    lake = open_lake(config)
    folder = report_folder(lake)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{PAGE}.{os.getpid()}"
    part.write_text(render(config, lake, folder), encoding="utf-8")
    return part.replace(folder / PAGE)


def report_folder(lake: Lake) -> Path:
    """Returns `report/` in the lake if the lake is a folder, else in the work folder."""
    return work_folder(lake, "report") if "://" in lake.uri else Path(lake.uri) / "report"


def render(config: Config, lake: Lake, folder: Path) -> str:
    """Renders the page as text."""
    found = gather(config, OpenLake(lake), folder)
    specs = {
        "success": success_chart(found.iterations),
        "collected": charts.collected(found.collected),
        "heat": charts.heat(found.tasks),
        "funnel": charts.funnel(found.funnel),
        "weights": charts.weights(found.curriculum),
        "stages": charts.stages(found.stages),
        "training": charts.training(found.training),
    }
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html.jinja").render(
        **vars(found),
        replays=replays(lake),
        made_at=utc_now().strftime("%Y-%m-%d %H:%M UTC"),
        charts={name for name, spec in specs.items() if spec},
        specs=_script({name: spec for name, spec in specs.items() if spec}),
        vega=vega(),
    )


@cache
def vega() -> str:
    """Returns Vega, Vega-Lite and vega-embed as one script that can be inside a page."""
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return vl_convert.javascript_bundle(ALL, vl_version=version).replace("</script", "<\\/script")


def _script(value: Any) -> str:
    return json.dumps(value).replace("</", "<\\/")
