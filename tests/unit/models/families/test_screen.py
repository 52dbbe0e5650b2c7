"""Screens in the size that a checkpoint's own processor would choose, and coordinates read in it."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from models.completion import Completion
from models.families.family import ModelFamily, PixelFamily
from models.families.processor import read_limits, read_processor
from models.families.registry import FAMILIES
from models.families.screen import ImageLimits, limits_of, picture, picture_png
from schemas.action import Click
from schemas.config.policy import PolicyConfig
from schemas.failure import CheckpointError, FlywheelError, UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.models.families.published import write_directory

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "coordinates.json").read_text())
LIMITS = ((28, 3136, 12845056), (28, 3136, 1003520), (28, 78400, 12845056), (32, 65536, 16777216))


def made(name: str, limits: list[int] | None) -> ModelFamily:
    kind = FAMILIES.class_of(name)
    family = kind(PolicyConfig.model_validate({"template": kind.templates[0]}))
    family.fit(ImageLimits(*limits) if limits else None)
    return family


@pytest.mark.parametrize("case", GOLDEN["screens"], ids=lambda case: f"{case['screen']} {case['limits']}")
def test_screens_are_shown_in_the_published_sizes(case: dict[str, Any]) -> None:
    limits = ImageLimits(*case["limits"])
    if case["shown"] is None:
        with pytest.raises(ValueError, match="ratio 210"):
            limits.resized(tuple(case["screen"]))
    else:
        assert limits.resized(tuple(case["screen"])) == tuple(case["shown"])


@pytest.mark.parametrize("case", GOLDEN["replies"], ids=lambda case: f"{case['vector']} {case['text'][:40]}")
def test_replies_mean_the_published_places(case: dict[str, Any]) -> None:
    action = made(case["family"], case["limits"]).read(Completion(case["text"]), tuple(case["screen"])).first
    assert action is not None
    if "type" in case:
        assert action.type == case["type"]
    fields = action.model_dump()
    for place, names in ((case.get("at"), ("x", "y")), (case.get("to"), ("to_x", "to_y"))):
        if place is not None:
            assert [fields[name] for name in names] == pytest.approx(place, abs=6e-7)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(LIMITS), st.integers(14, 5000), st.integers(14, 5000))
def test_what_was_resized_is_not_resized_again(limits: tuple[int, int, int], width: int, height: int) -> None:
    if max(width, height) / min(width, height) <= 200:
        shown = ImageLimits(*limits).resized((width, height))
        assert ImageLimits(*limits).resized(shown) == shown


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(LIMITS), st.integers(60, 4000), st.integers(60, 4000), st.floats(0, 1), st.floats(0, 1))
def test_a_place_comes_back_within_half_a_pixel_of_what_was_shown(
    limits: tuple[int, int, int], width: int, height: int, x: float, y: float
) -> None:
    family = PixelFamily(PolicyConfig())
    family.fit(ImageLimits(*limits))
    action = family.read(Completion(family.write(Click(x=x, y=y), (width, height))), (width, height)).first
    columns, rows = family.sides((width, height))
    assert isinstance(action, Click)
    assert abs(action.x - x) * columns <= 0.5 + 1e-6 and abs(action.y - y) * rows <= 0.5 + 1e-6


def processors() -> list[Any]:
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return [
        Qwen2VLImageProcessorPil(),
        Qwen2VLImageProcessorPil(min_pixels=3136, max_pixels=100_000),
        Qwen2VLImageProcessorPil(patch_size=16, size={"shortest_edge": 65536, "longest_edge": 16777216}),
        Glm4vImageProcessorPil(),
        Glm4vImageProcessorPil(size={"shortest_edge": 112 * 112, "longest_edge": 90_000}),
    ]


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("size", [(160, 210), (70, 70), (333, 41), (13, 40), (640, 360)])
def test_the_picture_has_the_size_and_the_pixels_that_the_processor_makes(number: int, size: tuple[int, int]) -> None:
    processor = processors()[number]
    limits = limits_of(processor)
    assert limits is not None
    noise = np.random.default_rng(number).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "png")
    ours = picture(buffer.getvalue(), limits)
    theirs, again = (processor(images=[one], return_tensors="np") for one in (Image.fromarray(noise), ours))
    _, rows, columns = (int(side) for side in theirs["image_grid_thw"][0])
    assert ours.size == (columns * processor.patch_size, rows * processor.patch_size)
    assert np.array_equal(theirs["pixel_values"], again["pixel_values"])
    sent = Image.open(io.BytesIO(picture_png(buffer.getvalue(), limits))).convert("RGB")
    assert np.array_equal(np.asarray(sent), np.asarray(ours))


def test_a_screen_of_the_right_size_is_sent_as_it_is() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (56, 84)).save(buffer, "png", compress_level=0)
    assert picture_png(buffer.getvalue(), ImageLimits(28, 3136, 12845056)) == buffer.getvalue()


@pytest.mark.parametrize(
    "written",
    [
        {"min_pixels": 3136, "max_pixels": 2116800},
        {"size": {"shortest_edge": 3136, "longest_edge": 2116800}},
        {"min_pixels": 3136, "max_pixels": 2116800, "size": {"min_pixels": 1, "max_pixels": 2}},
    ],
)
def test_limits_are_read_from_either_spelling(tmp_path: Path, written: dict[str, Any]) -> None:
    fields = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "merge_size": 2, **written}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(fields))
    assert read_limits(tmp_path) == ImageLimits(28, 3136, 2116800)


def test_a_checkpoint_without_a_processor_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"policy\.base.*no image processor.*preprocessor_config\.json"):
        read_limits(tmp_path)


def test_pixels_are_refused_where_nothing_says_how_large_the_picture_is(tmp_path: Path) -> None:
    fields = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 224}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(fields))
    assert read_limits(tmp_path) is None
    with pytest.raises(UsageError, match=r"policy\.family"):
        PixelFamily(PolicyConfig()).fit(None)


def test_a_torchvision_of_another_build_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    import transformers.utils.import_utils as found

    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(
        "raise RuntimeError('operator torchvision::nms is not there')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.setattr(found, "is_torchvision_available", lambda: True)
    for read in (read_limits, read_processor):
        with sentence.raises(FlywheelError):
            read(tmp_path)


def test_a_processor_without_its_video_part_keeps_what_it_says_of_itself(tmp_path: Path) -> None:
    marks = {"start_image_token": "<|box_start|>", "end_image_token": "<|box_end|>", "video_token": "<|video_pad|>"}
    marks["context_image_token"] = "<|image_pad|>"
    directory = write_directory("qwen2_vl", tmp_path)
    for name, fields in {
        "tokenizer_config.json": {"extra_special_tokens": marks},
        "preprocessor_config.json": {
            "image_processor_type": "GotOcr2ImageProcessor",
            "size": {"height": 56, "width": 56},
        },
        "processor_config.json": {"processor_class": "InternVLProcessor", "image_seq_length": 4},
        "video_preprocessor_config.json": {"video_processor_type": "InternVLVideoProcessor"},
    }.items():
        file = directory / name
        file.write_text(json.dumps({**(json.loads(file.read_text()) if file.exists() else {}), **fields}))
    processor = read_processor(directory)
    assert (type(processor).__name__, processor.image_seq_length) == ("InternVLProcessor", 4)
    assert read_limits(directory) is None


@pytest.mark.parametrize("file", ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"])
def test_a_processor_without_its_video_part_finds_its_chat_template_wherever_it_is(tmp_path: Path, file: str) -> None:
    """Qwen2.5-VL's first checkpoints have theirs in `chat_template.json` alone; transformers 5.23.0 reads all three."""
    directory = write_directory("qwen2_5_vl", tmp_path)
    config = directory / "tokenizer_config.json"
    held = json.loads(config.read_text())
    held.pop("chat_template", None)
    config.write_text(json.dumps(held))
    (directory / "chat_template.jinja").unlink()
    written = "{{ messages[0].content }}, from " + file
    if file.endswith(".json"):
        had = json.loads((directory / file).read_text()) if (directory / file).exists() else {}
        (directory / file).write_text(json.dumps({**had, "chat_template": written}))
    else:
        (directory / file).write_text(written)
    processor = read_processor(directory)
    chat = [{"role": "user", "content": "Hello"}]
    assert processor.apply_chat_template(chat, tokenize=False) == f"Hello, from {file}"
