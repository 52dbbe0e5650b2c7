"""Define tasks with an image viewer."""

import io
import random

from PIL import Image, ImageDraw

from environments.desktop.goal import DesktopGoal
from environments.desktop.tasks.task import WORDS, DesktopInstance, DesktopProgram

PROGRAM = DesktopProgram("pictures")
task = PROGRAM.task

SIZE = (240, 160)
COLOURS = {
    "blue": (30, 80, 220), "green": (20, 150, 60), "orange": (240, 140, 20), "purple": (130, 40, 170),
    "red": (210, 30, 30), "yellow": (240, 220, 40),
}  # fmt: skip
VIEWER = "gpicview"


def png(picture: Image.Image) -> bytes:
    """Encodes a picture as PNG."""
    stream = io.BytesIO()
    picture.save(stream, "png")
    return stream.getvalue()


def _disc(colour: str) -> Image.Image:
    """Draws a disc of a colour on white, towards the upper left, with a bar below, so that all rotations differ."""
    picture = Image.new("RGB", SIZE, "white")
    pen = ImageDraw.Draw(picture)
    pen.ellipse((20, 15, 110, 105), fill=COLOURS[colour])
    pen.rectangle((20, 125, 220, 140), fill=(60, 60, 60))
    return picture


@task("turn-picture", "Turn the picture by 90 degrees {}, and save it under its name.", "dialog", 8)
def _turn(chance: random.Random) -> DesktopInstance:
    way, turn = chance.choice((("clockwise", Image.Transpose.ROTATE_270), ("anticlockwise", Image.Transpose.ROTATE_90)))
    name, picture = f"{chance.choice(WORDS)}.png", _disc(chance.choice(sorted(COLOURS)))
    goal = DesktopGoal({name: png(picture.transpose(turn))})
    return DesktopInstance((way,), goal, {name: png(picture)}, ((VIEWER, f"~/{name}"),))


@task("delete-picture", "Of the pictures in this folder, delete the one with the {} disc.", "dialog", 10)
def _delete_disc(chance: random.Random) -> DesktopInstance:
    colours, names = chance.sample(sorted(COLOURS), 4), sorted(chance.sample(WORDS, 4))
    files = {f"{name}.png": png(_disc(colour)) for name, colour in zip(names, colours, strict=True)}
    at = chance.randrange(1, 4)
    goal = DesktopGoal({f"{names[at]}.png": None})
    return DesktopInstance((colours[at],), goal, files, ((VIEWER, f"~/{names[0]}.png"),))
