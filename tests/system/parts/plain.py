"""What plain `transformers` says of one document by itself: the reference of gradients under plans."""

import io
from collections.abc import Sequence
from typing import Any

from PIL import Image
from torch import Tensor

from learning.data.sample import Screenshots
from learning.engines.fsdp.chats import Chat, Chats


def plain_logits(model: Any, chats: Chats, chat: Chat, digests: Sequence[str], screenshots: Screenshots) -> Tensor:
    """Logits (tokens, vocabulary) by the library's own forward, nothing packed and nothing shared."""
    return plain_output(model, chats, chat, digests, screenshots).logits[0]


def plain_output(
    model: Any, chats: Chats, chat: Chat, digests: Sequence[str], screenshots: Screenshots, **asked: Any
) -> Any:
    """All that it gives."""
    images = [Image.open(io.BytesIO(screenshots.png(digest))).convert("RGB") for digest in digests]
    seen = chats.processor.image_processor(images=images, return_tensors="pt")
    return model(
        input_ids=chat.ids[None],
        pixel_values=seen["pixel_values"].double(),
        image_grid_thw=seen["image_grid_thw"],
        mm_token_type_ids=chat.kinds[None],
        **asked,
    )
