"""Samples as tokens: the same that the directory's own processor makes of the chat that is acted on."""

import io
from pathlib import Path

import pytest
import torch
from PIL import Image

from learning.data.sample import Screenshots, TrainSample, write_screenshots
from learning.engines.fsdp.chats import Chats
from models.completion import Completion
from models.families.processor import read_processor
from models.families.registry import family_of
from models.policy import Context
from models.random_vlm import KINDS, build_random
from schemas.action import Click, from_json
from schemas.failure import FlywheelError
from schemas.observation import Observation, PastStep
from tests.unit.learning.chats import POLICY, varied
from tests.unit.learning.samples import HEIGHT, WIDTH


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for kind in KINDS[:2]:
        build_random(kind, ["Click on ok."] * 8, 0, folder / kind)  # type: ignore[arg-type]
    write_screenshots(folder / "screenshots.parquet", varied(12)[1])
    return folder


def chats(folder: Path, kind: str) -> Chats:
    return Chats(folder / kind, POLICY, Screenshots(folder / "screenshots.parquet"), 0)


def rolled_out(
    directory: Path, sample: TrainSample, pngs: dict[str, bytes], texts: list[str]
) -> list[dict[str, object]]:
    """The chat as a policy meets it, its past actions as the model wrote them."""
    screens = [Observation(pngs[digest], WIDTH, HEIGHT, "") for digest in sample.screenshots]
    past = [screens[0]] * (len(sample.history) + 1 - len(screens)) + screens
    turns = tuple(
        PastStep(step.thought, text, screen) for step, text, screen in zip(sample.history, texts, past, strict=False)
    )
    chat = family_of(POLICY, directory).messages(Context(sample.instruction, turns, screens[-1], 0))
    for message in chat:
        for part in message["content"]:
            if part["type"] == "image":
                part["image"] = Image.open(io.BytesIO(part["observation"].png)).convert("RGB")
    return chat


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_sample_is_the_prompt_of_the_rollout_then_the_reply_and_its_end(folder: Path, kind: str) -> None:
    processor, encoder = read_processor(folder / kind), chats(folder, kind)
    made, pngs = varied(12)
    for sample in [one for one in made if one.actions]:
        chat = encoder.encode(sample)
        prompt = processor.apply_chat_template(
            rolled_out(folder / kind, sample, pngs, ["wait()"] * len(sample.history)),
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        length = prompt["input_ids"].shape[1]
        assert torch.equal(prompt["input_ids"][0], chat.ids[:length])
        assert torch.equal(prompt["mm_token_type_ids"][0], chat.kinds[:length])
        assert torch.equal(prompt["image_grid_thw"], chat.grids)
        measure = encoder.measure(sample)
        shown = [encoder.pixels(digest) for digest in measure.digests]
        assert torch.equal(torch.cat([pixels for pixels, _ in shown]), prompt["pixel_values"])
        assert (chat.targets[: length - 1] == -1).all() and (chat.targets[length - 1 :] >= 0).all()
        assert torch.equal(chat.ids[length:], chat.targets[length - 1 : -1])
        assert chat.targets[-1] == processor.tokenizer.eos_token_id


@pytest.mark.parametrize("kind", KINDS[:2])
def test_what_is_learnt_is_read_back_as_the_action(folder: Path, kind: str) -> None:
    processor, encoder = read_processor(folder / kind), chats(folder, kind)
    family = family_of(POLICY, folder / kind)
    for sample in varied(12)[0]:
        targets = encoder.encode(sample).targets
        text = processor.tokenizer.decode(targets[targets >= 0], skip_special_tokens=True)
        action = family.read(Completion(text), (WIDTH, HEIGHT)).first
        assert action is not None
        if sample.actions:
            wanted = from_json(sample.actions[0])
            assert action.type == wanted.type
            if isinstance(wanted, Click) and isinstance(action, Click):
                assert abs(action.x - wanted.x) < 0.01 and abs(action.y - wanted.y) < 0.01


def test_lengths_are_known_without_pixels_and_are_those_of_the_tokens(folder: Path, monkeypatch) -> None:
    encoder = chats(folder, "qwen3_vl")
    monkeypatch.setattr(Screenshots, "png", None)
    for sample in varied(12)[0]:
        measure, chat = encoder.measure(sample), encoder.encode(sample)
        assert measure.item.tokens == len(chat.ids) and measure.targets == int((chat.targets >= 0).sum())
        where = [range(piece.start, piece.start + piece.tokens) for piece in measure.item.screens]
        assert [index for stretch in where for index in stretch] == chat.kinds.nonzero()[:, 0].tolist()
        assert [piece.patches for piece in measure.item.screens] == chat.grids.prod(1).tolist()


def test_a_sample_with_nothing_to_say_is_named(folder: Path) -> None:
    digest = next(iter(varied(12)[1]))
    with pytest.raises(FlywheelError, match="t/empty"):
        chats(folder, "qwen3_vl").encode(TrainSample("t/empty", (digest,), "?"))


def test_a_missing_screenshot_is_named(folder: Path) -> None:
    with pytest.raises(FlywheelError, match="nowhere"):
        chats(folder, "qwen3_vl").encode(TrainSample("t", ("nowhere",), "?", actions=('{"type":"wait"}',)))
