"""Screens on their white canvas: nothing scaled, white is zero, patches in the model's order."""

import io

import numpy as np
import torch
from PIL import Image

from models.tiny.build import PixelCache, canvas_of, grid_of, patches_of
from models.tiny.network import Grid


def test_the_canvas_is_the_smallest_of_whole_blocks() -> None:
    assert grid_of(210, 160, 16, 2) == Grid(14, 10)


def test_a_moved_screen_is_filled_with_white() -> None:
    black = np.zeros((20, 30, 3), dtype=np.uint8)
    moved = canvas_of(black, Grid(2, 2), 16, down=3, right=-4)
    assert (moved[:3] == 255).all() and (moved[3:23, :26] == 0).all() and (moved[:, 26:] == 255).all()


def test_white_is_zero_to_the_network() -> None:
    white = np.full((32, 32, 3), 255, dtype=np.uint8)
    assert not patches_of([white], 16, 2, torch.bfloat16).any()


def test_patches_equal_those_of_the_image_processor() -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    image = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    processor = Qwen2VLImageProcessorPil(
        patch_size=16, temporal_patch_size=1, merge_size=2, image_mean=[1.0] * 3, image_std=[0.2] * 3
    )
    expected = processor(images=[image], return_tensors="pt", do_resize=False)["pixel_values"]
    assert torch.allclose(patches_of([image], 16, 2, torch.float32)[0], expected, atol=1e-5)


def test_decoded_screens_stay_within_their_bytes_and_those_asked_for_last_are_held() -> None:
    read: list[str] = []

    class Pngs(dict[str, bytes]):
        def __getitem__(self, digest: str) -> bytes:
            read.append(digest)
            return super().__getitem__(digest)

    out = io.BytesIO()
    Image.new("RGB", (4, 3)).save(out, "png")
    cache = PixelCache(Pngs(dict.fromkeys("abc", out.getvalue())), most=2 * 4 * 3 * 3)
    for digest in "abacab":
        assert cache(digest).shape == (3, 4, 3)
    assert read == ["a", "b", "c", "b"]
