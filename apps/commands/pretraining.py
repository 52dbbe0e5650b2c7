"""Implement `flywheel pretrain`: make a base policy from rendered pages."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.options import AsJson, ConfigFile, Overrides, open_lake, print_line, print_result, resolve

if TYPE_CHECKING:
    from tasks.pretrain.render import RenderResult


def render(
    overrides: Overrides = None,
    config: ConfigFile = None,
    pages: Annotated[int | None, typer.Option(min=1, help="Pages for training; `pretrain.pages` if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Render pages with tasks into the lake; if it is interrupted, the same command continues."""
    from apps.calling import call

    number = [] if pages is None else [f"pretrain.pages={pages}"]
    found: RenderResult = call("flows.data.render", resolve(config, [*(overrides or ()), *number]))
    print_result(as_json, found.model_dump(), lambda: [print_line(text) for text in found.lines])


def train(
    overrides: Overrides = None,
    config: ConfigFile = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="A new or empty folder for a copy.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a base policy that reads and points, from the lake's rendered pages."""
    from apps.calling import call
    from apps.commands.policies import export_policy, require_empty
    from tasks.pretrain.train import MEASURES, check_base
    from tasks.shared.policies import policy_row

    resolved = resolve(config, overrides)
    lake = open_lake(resolved)
    if out is not None:
        require_empty(out, "--out")
    check_base(resolved, lake)
    version = call("flows.pretrain.train", resolved)
    metrics: dict[str, Any] = json.loads(policy_row(lake, version).metrics)
    if out is not None:
        export_policy(lake, version, out)
    measured = ", ".join(f"{name} {metrics[key]:.3f}" for key, name in MEASURES.items() if key in metrics)
    where = f"{out}: `flywheel run policy.base={out}`" if out else f"`flywheel export --policy {version} --to DIR`"
    found = {"policy": version, "out": out and str(out), "metrics": metrics}
    print_result(as_json, found, f"{version}: {measured}. {where}")


VERBS = (render, train)
