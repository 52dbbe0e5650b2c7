"""What happens to a picture in planted faults and near-duplicates."""

import io
import random

import numpy as np
from PIL import Image, ImageDraw


def menu(screen: bytes, chance: random.Random) -> bytes:
    """A menu open over a page."""
    image = Image.open(io.BytesIO(screen)).convert("RGB")
    pen, x, y = ImageDraw.Draw(image), chance.randint(0, 80), chance.randint(0, 80)
    pen.rectangle((x, y, x + 70, y + 60), fill=(250, 250, 210), outline="black")
    pen.multiline_text((x + 4, y + 4), "\n".join(f"item {chance.randint(0, 9999)}" for _ in range(4)), fill="black")
    return png(image)


def clock(screen: bytes, seconds: int) -> bytes:
    """The time in the lower right corner of a page."""
    image = Image.open(io.BytesIO(screen)).convert("RGB")
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    ImageDraw.Draw(image).text((image.width - 52, image.height - 12), text, fill="black")
    return png(image)


def noise(screen: bytes, chance: random.Random) -> bytes:
    """The same page with noise of two in 255."""
    pixels = np.asarray(Image.open(io.BytesIO(screen)).convert("RGB"), dtype=float)
    noise = np.random.default_rng(chance.randrange(2**32)).normal(0, 2, pixels.shape)
    return png(Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8)))


def cursor(screen: bytes, chance: random.Random) -> bytes:
    """A mouse pointer over a page."""
    image = Image.open(io.BytesIO(screen)).convert("RGB")
    x, y = chance.randrange(image.width - 8), chance.randrange(image.height - 12)
    ImageDraw.Draw(image).polygon([(x, y), (x, y + 10), (x + 6, y + 7)], fill="black", outline="white")
    return png(image)


def reencoded(screen: bytes, chance: random.Random) -> bytes:
    """A page that was a JPEG in between."""
    stream = io.BytesIO()
    Image.open(io.BytesIO(screen)).convert("RGB").save(stream, "jpeg", quality=chance.randint(88, 95))
    return png(Image.open(stream))


def png(image: Image.Image) -> bytes:
    """PNG bytes."""
    stream = io.BytesIO()
    image.save(stream, "png", compress_level=1)
    return stream.getvalue()
