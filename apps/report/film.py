"""Draw a moving picture of a task being learned: trajectories of each iteration, played next to each other.

    python -m apps.report.film lake --task miniwob/highlight-text --to learning.gif

Every column is an iteration: the explorer's trajectories in the first one, then the policy's own. The trajectories are
the first ones by their ids, so the picture shows successes and failures as they came.
"""

from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from PIL import Image, ImageDraw, ImageFont

import flywheel
from flywheel import OpenLake
from flywheel.film import INK, PAPER, SOFT, frames_of, save_moving
from schemas.failure import FlywheelError, UsageError

ROWS, STEPS = 3, 8
"""Trajectories in a column, and steps of one, at most."""
WIDE, GAP, HEAD = 150, 12, 40
"""Pixels: width of a screen, space between screens, and height of a column's text."""
STEP_MS = 700
MOST_BYTES = 2_000_000


def film(lake: OpenLake, task: str) -> list[Image.Image]:
    """Draw the frames, one a step, all of one size.

    Args:
        lake: the lake.
        task: the task's id, such as `miniwob/highlight-text`.

    Raises:
        UsageError: the lake has no trajectories of the task.
    """
    own = (pl.col("iteration") == 0) & (pl.col("policy") == "explorer") | (pl.col("policy") == "policy")
    found = lake.trajectories().filter((pl.col("task_id") == task) & (pl.col("iteration") >= 0) & own)
    found = found.filter(pl.col("n_steps") > 0).sort("iteration", "trajectory_id")
    rows = found.select("trajectory_id", "iteration", "policy", "success").collect()
    if rows.is_empty():
        raise UsageError(f"The lake has no trajectories of {task!r}.", "`flywheel tasks` lists the tasks.")
    columns = [
        (_text(group), [lake.trajectory(one) for one in group["trajectory_id"].head(ROWS)])
        for group in rows.partition_by("iteration", maintain_order=True)
    ]
    plays = [[frames_of(one, WIDE, captions=False, most=STEPS) for one in column] for _, column in columns]
    tall = max(screen.height for column in plays for play in column for screen in play)
    frames = max(len(play) for column in plays for play in column)
    size = GAP + len(columns) * (WIDE + GAP), HEAD + ROWS * (tall + GAP)
    return [_frame(size, tall, [text for text, _ in columns], plays, number) for number in range(frames)]


def _text(group: pl.DataFrame) -> str:
    """The column's text: whose trajectories these are, and the share that succeeds."""
    iteration, policy = group["iteration"][0], group["policy"][0]
    share = f"{group['success'].mean():.0%} of {len(group)}"
    return f"explorer\n{share}" if policy == "explorer" else f"policy, iteration {iteration}\n{share}"


def _frame(
    size: tuple[int, int], tall: int, texts: list[str], plays: list[list[list[Image.Image]]], number: int
) -> Image.Image:
    made = Image.new("RGB", size, PAPER)
    draw, font, small = ImageDraw.Draw(made), ImageFont.load_default(14), ImageFont.load_default(12)
    for at, (text, column) in enumerate(zip(texts, plays, strict=True)):
        left, (head, share) = GAP + at * (WIDE + GAP), text.split("\n")
        draw.text((left, 4), head, INK, font)
        draw.text((left, 21), share, SOFT, small)
        for row, play in enumerate(column):
            made.paste(play[min(number, len(play) - 1)], (left, HEAD + row * (tall + GAP)))
    return made


def main(
    lake: Annotated[str, typer.Argument(help="The lake's folder or address.")],
    task: Annotated[str, typer.Option(help="A task's id.")],
    to: Annotated[Path, typer.Option(help="The GIF to write.")] = Path("learning.gif"),
) -> None:
    """Draw a task being learned, from a lake's trajectories."""
    try:
        frames = film(flywheel.open(lake), task)
        save_moving(frames, to, MOST_BYTES, STEP_MS)
    except FlywheelError as error:
        raise typer.BadParameter(f"{error} {error.hint}") from None
    typer.echo(f"{to}: {len(frames)} frames, {to.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    typer.run(main)
