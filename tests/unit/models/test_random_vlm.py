"""Random models have the geometry of the published ones."""

from pathlib import Path

import pytest

from models.random_vlm import build_random
from models.tiny.layout import read_config

PUBLISHED = {"fullatt_block_indexes": [7, 15, 23, 31], "window_size": 112, "patch_size": 14, "depth": 32}
"""Source: `vision_config` of https://huggingface.co/Qwen/Qwen2.5-VL-3B-Instruct/blob/main/config.json."""


def test_windows_and_whole_layers_are_those_of_qwen2_5_vl_3b(tmp_path: Path) -> None:
    build_random("qwen2_5_vl", ["Click on ok."] * 8, 0, tmp_path / "model", vision_layers=32)
    vision = read_config(tmp_path / "model")["vision_config"]
    assert {name: vision[name] for name in PUBLISHED} == PUBLISHED


@pytest.mark.parametrize(("layers", "whole"), [(1, [0]), (2, [1]), (9, [7, 8])])
def test_a_small_tower_s_last_layer_attends_to_whole_screens(layers: int, whole: list[int], tmp_path: Path) -> None:
    build_random("qwen2_5_vl", ["Click on ok."] * 8, 0, tmp_path / "model", vision_layers=layers, window=56)
    vision = read_config(tmp_path / "model")["vision_config"]
    assert (vision["fullatt_block_indexes"], vision["window_size"]) == (whole, 56)
