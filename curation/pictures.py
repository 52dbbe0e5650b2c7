"""What a picture looks like, in 64 bits."""

import io

from PIL import Image


def average_hash(png: bytes) -> str:
    """The 64-bit average hash of a PNG, in hex: a bit per cell of an 8x8 thumbnail, set where above the mean."""
    cells = list(Image.open(io.BytesIO(png)).convert("L").resize((8, 8)).tobytes())
    mean = sum(cells) / len(cells)
    return f"{sum(1 << position for position, cell in enumerate(cells) if cell > mean):016x}"
