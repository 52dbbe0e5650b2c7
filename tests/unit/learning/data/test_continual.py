"""What is learned from failed trajectories: true of their screens, never a reply to their instruction."""

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from curation.annotation import inverse_annotation, transition_annotation
from learning.data.documents import chat_of
from learning.data.sample import Screenshots, TrainSample, read_samples, write_samples, write_screenshots
from learning.engines.fsdp.chats import Chats
from learning.engines.tiny.batches import Batcher
from models.families.dialects import parse_reply
from models.families.family import ModelFamily
from models.families.prompt import WHAT_CHANGED, WHAT_WAS_DONE, question_of
from models.random_vlm import build_random
from models.tiny.generator import prompt_text, read_tokenizer
from models.tiny.network import TinyNet
from schemas.action import Click, to_json
from schemas.observation import Element, Observation
from schemas.tables.step import Step
from tests.unit.learning.chats import POLICY as WIDE
from tests.unit.learning.samples import HEIGHT, POLICY, TRAIN, WIDTH, parent, samples

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLICK = to_json(Click(x=0.4, y=0.6))
FIELD = Element("", "text field", (0.1, 0.1, 0.5, 0.2), True)


def step(**changes: Any) -> Step:
    row = {"trajectory_id": "t", "step": 0, "iteration": 0, "screenshot": "a", "next_screenshot": "b"}
    return Step.model_construct(**row | {"actions": [CLICK], "action_error": None, "x": 0.4, "y": 0.6} | changes)


def test_the_action_between_two_screens_is_kept_with_both() -> None:
    kept = inverse_annotation(step(), NOW)
    assert kept is not None
    assert (kept.kind, kept.action, kept.before, kept.after) == ("inverse_dynamics", CLICK, "a", "b")


@pytest.mark.parametrize(
    "changes",
    [
        {"next_screenshot": "a"},
        {"next_screenshot": None},
        {"actions": []},
        {"action_error": "no such key"},
        {"actions": ['{"type":"finished","content":""}']},
    ],
)
def test_an_action_that_the_screen_does_not_show_is_not_asked_for(changes: dict[str, Any]) -> None:
    assert inverse_annotation(step(**changes), NOW) is None


def test_a_change_is_told_only_where_elements_were_recorded_on_both_screens() -> None:
    after = Element("", "text field", FIELD.box, True, "ada")
    said = transition_annotation(step(), [FIELD], [after], NOW)
    assert said is not None and said.thought == 'text field now holds "ada".'
    assert said.action is None and (said.before, said.after) == ("a", "b")
    for before, now in (([FIELD], None), ([], [after]), ([FIELD], [FIELD])):
        assert transition_annotation(step(), before, now, NOW) is None


def test_of_equal_screens_it_is_said_that_nothing_changed() -> None:
    said = transition_annotation(step(next_screenshot="a"), [], None, NOW)
    assert said is not None and said.thought == "Nothing."


def compared(folder: Path) -> tuple[list[TrainSample], dict[str, bytes]]:
    """One sample of every kind of continual training, through the file that the trainer reads."""
    plain, pngs = samples(2)
    digests = tuple(pngs)
    made = [
        TrainSample("t", digests, "", actions=(CLICK,), kind="inverse_dynamics"),
        TrainSample("t", digests, "", thought='button "ok" appeared.', kind="transition"),
        TrainSample("t", digests[:1], "", questions=plain[0].questions, kind="naming"),
        TrainSample("t", digests[:1], "", questions=plain[0].questions),
    ]
    write_samples(folder / "samples.parquet", made)
    read = read_samples(folder / "samples.parquet")
    assert [sample.kind for sample in read] == [sample.kind for sample in made]
    return read, pngs


def test_the_small_policy_is_asked_about_two_screens_as_it_would_be_asked_by_a_chat(tmp_path: Path) -> None:
    directory = parent(tmp_path)
    made, pngs = compared(tmp_path)
    net, tokenizer = TinyNet.load(directory, torch.float32), read_tokenizer(directory)
    maker = Batcher(tokenizer, net, pngs, POLICY, TRAIN.model_copy(update={"shift": 0}))
    single, double = maker.batches(made, [(0, index) for index in range(4)])
    assert (single.screens, single.members, double.screens, double.members) == (1, (2, 3), 2, (0, 1))
    texts = [tokenizer.decode(ids, skip_special_tokens=False) for ids in double.packed.tokens.tolist()]
    said = [tokenizer.decode(double.targets[double.rows == index].tolist()) for index in (0, 1)]
    for text, question in zip(texts, (WHAT_WAS_DONE, WHAT_CHANGED), strict=True):
        assert text.startswith(prompt_text(question_of(question, [])))
    action = parse_reply(said[0]).first
    assert isinstance(action, Click) and (action.x, action.y) == (0.4, 0.6)
    assert said[1] == 'button "ok" appeared.'
    named = tokenizer.decode(single.targets[single.rows == 0].tolist())
    assert any(question.name in named for question in made[2].questions)


def test_a_stock_model_reads_the_chat_that_asks_about_two_screens(tmp_path: Path) -> None:
    made, pngs = compared(tmp_path)
    build_random("qwen3_vl", ["Click on ok."] * 8, 0, tmp_path / "model")
    write_screenshots(tmp_path / "screenshots.parquet", pngs)
    chats = Chats(tmp_path / "model", WIDE.model_copy(update={"history_images": 1}), _shots(tmp_path), 0)
    family = ModelFamily(WIDE)
    images = [Image.open(io.BytesIO(png)).convert("RGB") for png in pngs.values()]
    for sample, question, acts in ((made[0], WHAT_WAS_DONE, True), (made[1], WHAT_CHANGED, False)):
        chat = chats.encode(sample)
        asked = family.question(question, [Observation(b"", WIDTH, HEIGHT, "")] * 2, acts)
        screens = iter(images)
        for part in (part for message in asked for part in message["content"] if part["type"] == "image"):
            part["image"] = next(screens)
        prompt = chats.processor.apply_chat_template(
            asked, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        length = prompt["input_ids"].shape[1]
        assert torch.equal(prompt["input_ids"][0], chat.ids[:length])
        assert torch.equal(prompt["image_grid_thw"], chat.grids) and len(chat.grids) == 2
        assert len(chats.measure(sample).digests) == 2
    replies = [_reply(chats, sample) for sample in made]
    assert isinstance(parse_reply(replies[0]).first, Click)
    assert replies[1] == 'button "ok" appeared.'
    assert replies[2] in {question.name for question in made[2].questions}


def _shots(folder: Path) -> Screenshots:
    return Screenshots(folder / "screenshots.parquet")


def _reply(chats: Chats, sample: TrainSample) -> str:
    targets = chats.encode(sample).targets
    return chats.processor.tokenizer.decode(targets[targets >= 0], skip_special_tokens=True)


def perceived(digest: str) -> list[TrainSample]:
    """A question with a place, and one without, in which the page itself writes `{place}`."""
    return [
        TrainSample("t", (digest,), "What is at {place}?", thought="A button.", actions=(CLICK,), kind="perception"),
        TrainSample("t", (digest,), 'Is there a button "{place}"?', thought="No.", kind="perception"),
    ]


def test_the_small_policy_is_asked_about_a_screen_at_the_place_as_it_writes_it(tmp_path: Path) -> None:
    directory = parent(tmp_path)
    plain, pngs = samples(1)
    write_samples(tmp_path / "samples", perceived(plain[0].screenshots[0]))
    made = read_samples(tmp_path / "samples")
    net, tokenizer = TinyNet.load(directory, torch.float32), read_tokenizer(directory)
    still, moved = (
        Batcher(tokenizer, net, pngs, POLICY, TRAIN.model_copy(update={"shift": shift})) for shift in (0, 4)
    )
    (batch,) = still.batches(made, [(0, 0), (0, 1)])
    texts = [tokenizer.decode(ids, skip_special_tokens=False) for ids in batch.packed.tokens.tolist()]
    assert texts[0].startswith("What is at click(start_box='(400,600)')?")
    assert texts[1].startswith('Is there a button "{place}"?')
    said = [tokenizer.decode(batch.targets[batch.rows == row].tolist()) for row in (0, 1)]
    assert said == ["A button.", "No."]
    asked = {tuple(moved.batches(made[:1], [(0, seed)])[0].packed.tokens[0].tolist()) for seed in range(8)}
    assert len(asked) > 3
    assert still.tokens(made[0], (0, 0)) > 0


def test_any_model_is_asked_about_a_screen_by_a_chat_with_one_screen(tmp_path: Path) -> None:
    plain, pngs = samples(1)
    build_random("qwen3_vl", ["Click on ok."] * 8, 0, tmp_path / "model")
    write_screenshots(tmp_path / "screenshots.parquet", pngs)
    chats = Chats(tmp_path / "model", WIDE.model_copy(update={"history_images": 3}), _shots(tmp_path), 0)
    family = ModelFamily(WIDE)
    for sample, answer in zip(perceived(plain[0].screenshots[0]), ("A button.", "No."), strict=True):
        messages, reply = chat_of(sample, family, [(WIDTH, HEIGHT)], 0)
        asked = messages[0]["content"][0]["text"]
        assert asked == ("What is at click(start_box='(400,600)')?" if sample.actions else sample.instruction)
        assert reply == answer and len(chats.encode(sample).grids) == 1
