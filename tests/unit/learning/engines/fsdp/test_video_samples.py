"""Video samples as tokens, positions and patches: those of the model's own video path, and a training on them."""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from common.picture import png_of
from learning.algorithms.method import method_of
from learning.data.sample import Screenshots, TrainSample, read_samples, write_samples, write_screenshots
from learning.engines.engine import SampleRef
from learning.engines.fsdp.chats import Chats, FrameGroup
from learning.engines.fsdp.model import load_model
from learning.engines.fsdp.phases import precomputed_of
from learning.learner import Learner
from models.families.processor import read_video_rule
from models.families.video import frame_at
from models.random_vlm import build_random
from schemas.config.policy import PolicyConfig
from schemas.failure import FlywheelError, UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.learning.chats import job, policy_of

KINDS = ("qwen2_5_vl", "qwen3_vl", "qwen3_5")
WIDE, HIGH, RATE = 96, 128, 10.0
TIMES = (0.0, 0.7, 1.9, 3.1)
QUESTION = "What changed?"


def frame(number: int, size: tuple[int, int] = (WIDE, HIGH)) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    return png_of(Image.fromarray(pixels))


def named(*pngs: bytes) -> dict[str, bytes]:
    return {hashlib.sha256(png).hexdigest(): png for png in pngs}


PNGS = named(*(frame(number) for number in range(4)))
SAMPLE = TrainSample("a", tuple(PNGS), QUESTION, thought="Nothing.", kind="video", times=TIMES, seconds=4.0, rate=RATE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for kind in KINDS:
        build_random(kind, [f"{QUESTION} Nothing."] * 8, 0, folder / kind)  # type: ignore[arg-type]
    write_screenshots(folder / "screenshots.parquet", PNGS | named(frame(9, (64, 64))))
    return folder


def chats(folder: Path, kind: str) -> Chats:
    return Chats(folder / kind, policy_of(kind), Screenshots(folder / "screenshots.parquet"), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_video_sample_has_the_tokens_that_the_processor_counts_and_a_span_for_each_group_of_frames(
    folder: Path, kind: str
) -> None:
    encoder, rule = chats(folder, kind), read_video_rule(folder / kind)
    assert rule is not None
    chat, measure = encoder.encode(SAMPLE), encoder.measure(SAMPLE)
    groups = 4  # eight frames, two a second, two in a group
    assert chat.shapes["video_grid_thw"].tolist()[0][0] == groups == len(measure.item.screens)
    each = int(chat.grids[0].prod()) // rule.merge**2
    assert int((chat.kinds == 2).sum()) == groups * each
    for piece in measure.item.screens:
        assert piece.tokens == each and (chat.kinds[piece.start : piece.start + each] == 2).all()
    for number, group in enumerate(measure.digests):
        assert isinstance(group, FrameGroup)
        seconds = [one * 4.0 / 8 if not rule.stamped else round(one * 39 / 7) / RATE
                   for one in (2 * number, 2 * number + 1)]  # fmt: skip
        assert group.digests == tuple(SAMPLE.screenshots[frame_at(TIMES, second)] for second in seconds)


@pytest.mark.parametrize("kind", KINDS)
def test_positions_and_features_are_those_of_the_models_own_video_path(folder: Path, kind: str) -> None:
    from transformers import AutoModelForImageTextToText

    encoder = chats(folder, kind)
    chat, measure = encoder.encode(SAMPLE), encoder.measure(SAMPLE)
    model: Any = AutoModelForImageTextToText.from_pretrained(folder / kind, dtype=torch.float32)
    core, trained = model.base_model, load_model(folder / kind).float().base_model
    shown = [encoder.pixels(group) for group in measure.digests]
    pixels, grids = torch.cat([one for one, _ in shown]), torch.stack([grid for _, grid in shown])
    assert torch.equal(grids, chat.grids)
    whole = chat.shapes["video_grid_thw"]
    theirs = core.get_video_features(pixel_values_videos=pixels, video_grid_thw=whole, return_dict=True)
    ours = trained.get_image_features(
        pixel_values=pixels, image_grid_thw=grids, return_dict=True, **precomputed_of(trained.visual, grids)
    )
    assert torch.allclose(torch.cat(list(theirs.pooler_output)), torch.cat(list(ours.pooler_output)), atol=1e-5)
    found, _ = core.get_rope_index(input_ids=chat.ids[None], mm_token_type_ids=chat.kinds[None], **chat.shapes)
    video = found[0, 0, chat.kinds == 2]
    if kind == "qwen2_5_vl":  # positions count time: 2 a second in the model's config, a second between groups
        steps = video.unique().diff()
        assert (steps == int(core.config.vision_config.tokens_per_second * chat.shapes["second_per_grid_ts"])).all()
    else:  # the times are text between the groups
        assert len(video.unique()) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_the_patches_of_a_group_have_each_frame_at_its_place_in_time(folder: Path, kind: str) -> None:
    encoder, rule = chats(folder, kind), read_video_rule(folder / kind)
    assert rule is not None
    one, other = list(PNGS)[:2]
    pixels, grid = encoder.pixels(FrameGroup((one, other), (WIDE, HIGH) if rule.patch == 16 else (84, 140)))
    patches = pixels.view(len(pixels), 3, rule.temporal, rule.patch, rule.patch)
    if rule.patch == 16:  # no resize: the first patch is the upper left corner of each frame
        for at, digest in enumerate((one, other)):
            corner = np.asarray(Image.open(io.BytesIO(PNGS[digest])))[:16, :16].transpose(2, 0, 1) / 255
            wanted = (corner - np.array(rule.mean)[:, None, None]) / np.array(rule.std)[:, None, None]
            assert np.allclose(patches[0, :, at].numpy(), wanted, atol=1e-5)
    same, _ = encoder.pixels(FrameGroup((one, one), (84, 140) if rule.patch == 14 else (WIDE, HIGH)))
    assert torch.equal(same.view_as(patches)[:, :, 0], patches[:, :, 0])
    assert grid.tolist()[0] == 1


def test_samples_keep_their_times_in_the_trainers_file(tmp_path: Path) -> None:
    still = TrainSample("b", (next(iter(PNGS)),), "Click.", thought="So.", actions=('{"type":"wait"}',))
    write_samples(tmp_path / "samples", [SAMPLE, still])
    assert list(read_samples(tmp_path / "samples")) == [SAMPLE, still]


def test_a_video_of_screens_of_several_sizes_is_refused(folder: Path, sentence: Sentences) -> None:
    mixed = TrainSample(
        "a",
        (*list(PNGS)[:1], *named(frame(9, (64, 64)))),
        QUESTION,
        kind="video",
        times=(0.0, 1.0),
        seconds=4.0,
        rate=RATE,
    )
    with sentence.raises(FlywheelError, "one size"):
        chats(folder, "qwen3_vl").encode(mixed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_learns_the_answer_to_a_question_about_a_video(kind: str, tmp_path: Path) -> None:
    plan = job(tmp_path, kind)
    write_samples(plan.samples, [SAMPLE])
    write_screenshots(plan.screenshots, PNGS)
    learner = Learner(plan, method_of(plan.train).read(plan.samples), 0, 1)
    losses = [float(learner.step(learner.prepare([SampleRef(at, 0)]), 1e-2).loss) for at in range(8)]
    learner.close()
    assert losses[-1] < losses[0] / 2


def test_the_small_policy_takes_no_video(sentence: Sentences) -> None:
    from models.families.registry import family_of

    with sentence.raises(UsageError, "train.video"):
        family_of(PolicyConfig()).video_rule()
