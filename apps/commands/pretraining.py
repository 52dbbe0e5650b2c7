"""Implement `flywheel pretrain`: make a base policy from rendered pages."""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.options import AsJson, ConfigFile, Overrides, print_line, print_result, resolve

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


VERBS = (render,)
