"""Special tokens in exports: broken where a trainer tokenises the text, exact where a format records or exchanges."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.converters.exchanged import OWN, About, Correction, Exchanged, ExchangedStep, StepAbout, StepAssessment
from curation.converters.format import FORMATS
from curation.converters.tokens import plain, restored
from schemas.action import Finished, Type, to_json
from tests.unit.curation.converters.records import picture, taken, written

TOKENS = ["<|im_end|>", "<|im_start|>", "<image>", "<|image_pad|>", "<|vision_start|>", "</s>", "[INST]", "<turn|>"]
TOKENS += [
    "<end_of_turn>",
    "<start_of_image>",
    "<eos>",
    "<end_of_utterance>",
    "<fake_token_around_image>",
    "<sop>",
    "<img>",
]
TOKENS += ["<｜end▁of▁sentence｜>", "[gMASK]", "[TOOL_CALLS]", "[EOS]", "◁think▷"]
EVERY = "".join(TOKENS)
TRAINED = ["ui-tars", "trl", "verl", "scalecua", "agentnet", "lerobot"]
EXACT = ["atif", "label-studio"]
MARKUP = ("<|vision_start|><|image_pad|><|vision_end|>", "<image>\n")
"""The placeholders of pictures that `ui-tars`, and `scalecua` at a question's start, write themselves."""


def record(**of: Any) -> Exchanged:
    """A trajectory with tokens in every text, broken ones among them."""
    corrected = Correction(action=to_json(Type(content=f"c{EVERY}")), thought=f"p{EVERY}", replaces=True, taught=True)
    steps = (
        ExchangedStep(picture(1), f"I see {EVERY}", (Type(content=f"{EVERY}hi"),), better=f"better {EVERY}"),
        ExchangedStep(picture(2), "", (Type(content="a< |im_end|>"),), about=StepAbout(correction=corrected)),
        ExchangedStep(picture(3), "", (), text=f"odd {EVERY}", error="no action"),
        ExchangedStep(
            picture(4), f"So {EVERY}", (Finished(content=EVERY),), found=StepAssessment(True, False, f"Good {EVERY}")
        ),
    )
    about = About(lake="l", trajectory_id="t0")
    return Exchanged("t0", f"Write {EVERY} and <  /s>", steps, True, None, about, **of)


def texts(value: Any, ours: bool = False) -> list[str]:
    """All texts of a row except our metadata."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [one for name, held in value.items() if ours or name != OWN for one in texts(held)]
    return [one for held in value for one in texts(held)] if isinstance(value, list | tuple) else []


def rows(folder: Path) -> list[Any]:
    lines = [json.loads(line) for file in folder.rglob("*.jsonl") for line in file.read_text().splitlines()]
    files = [json.loads(file.read_text()) for file in folder.rglob("*.json") if file.parent.name != "meta"]
    return [*lines, *files, *(row for file in folder.rglob("*.parquet") for row in pq.read_table(file).to_pylist())]


def left(folder: Path) -> set[str]:
    """The tokens that stand unbroken in an export."""
    found = texts(rows(folder))
    assert found
    for one in MARKUP:
        found = [text.removeprefix(one).replace(MARKUP[0], "") for text in found if text != "<image>"]
    return {token for token in TOKENS for text in found if token in text}


@pytest.mark.parametrize("name", TRAINED)
def test_no_text_of_an_export_for_trainers_holds_a_token(tmp_path: Path, name: str) -> None:
    folder = written(FORMATS.class_of(name)(), [record()], tmp_path)
    assert left(folder) == set()
    whole = json.dumps([texts(one) for one in rows(folder)], ensure_ascii=False)
    assert all(f"{token[0]} {token[1:]}" in whole for token in TOKENS)


@pytest.mark.parametrize("name", EXACT)
def test_a_format_that_records_or_exchanges_keeps_texts_exactly(tmp_path: Path, name: str) -> None:
    folder = written(FORMATS.class_of(name)(), [record()], tmp_path)
    assert left(folder) == set(TOKENS)
    (again,) = taken(FORMATS.class_of(name)(), folder)
    assert again.instruction == record().instruction
    assert [one.action for one in again.steps] == [one.action for one in record().steps]


@pytest.mark.parametrize("name", TRAINED)
def test_an_import_of_an_export_restores_every_text(tmp_path: Path, name: str) -> None:
    (again,) = taken(FORMATS.class_of(name)(), written(FORMATS.class_of(name)(), [record()], tmp_path))
    assert again.instruction == record().instruction
    for ours, theirs in zip(record().steps, again.steps, strict=True):
        assert (ours.thought, ours.action) == (theirs.thought, theirs.action)
        assert ours.about.correction == theirs.about.correction
        assert theirs.text in (ours.text, "") or ours.text in theirs.text


REPLY = f"Thought: {EVERY}\nAction: type(content='{EVERY}')"
SAID = [("user", f"Write {EVERY.replace('<image>', '')}"), ("user", None), ("assistant", REPLY)]


def foreign(name: str) -> dict[str, Any]:
    """A row of others with one picture and tokens in its texts."""
    slot = {"ui-tars": MARKUP[0], "verl": "<image>"}.get(name)
    turns = [
        {
            "role": role,
            "content": [{"type": "image"}] if text is None and name == "trl" else slot if text is None else text,
        }
        for role, text in SAID
    ]
    if name in ("ui-tars", "trl"):
        turns[0]["content"] = f"Write {EVERY.replace('<image>', '').replace('<|vision_start|>', '')}"
    if name == "verl":
        return {"prompt": turns[:-1], "images": ["1.png"], "reward_model": {"ground_truth": REPLY}}
    if name == "scalecua":
        asked = "<image>\nTask: Write <|im_end|>\n\nPrevious operations:\nNone"
        answer = "<think>\n<|im_end|>\n</think>\n<operation>\nSay <|im_end|>\n</operation>\n"
        answer += "<action>\nwrite(message='<|im_end|>')\n</action>"
        conversations = [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}]
        return {"image": "1.png", "conversations": conversations}
    if name == "agentnet":
        value = {"code": f"pyautogui.write('{EVERY}')", "thought": EVERY, "observation": EVERY, "action": EVERY}
        return {"task_id": 1, "natural_language_task": EVERY, "traj": [{"image": "1.png", "value": value}]}
    return {"messages": turns, "images": ["1.png"]}


@pytest.mark.parametrize("name", ["ui-tars", "trl", "verl", "scalecua", "agentnet"])
def test_a_row_that_goes_as_it_came_has_its_tokens_broken_and_its_placeholders_kept(tmp_path: Path, name: str) -> None:
    form = FORMATS.class_of(name)()
    (tmp_path / "1.png").write_bytes(picture(1).png)
    (tmp_path / "theirs.jsonl").write_text(json.dumps(foreign(name)) + "\n")
    (first,) = taken(form, tmp_path / "theirs.jsonl", unit=None if name in ("scalecua", "agentnet") else "thousandths")
    assert "<|im_end|>" in first.instruction
    folder = written(form, [first], tmp_path / "out")
    assert left(folder) == set()
    (again,) = taken(form, folder)
    assert (again.instruction, again.steps[0].action) == (first.instruction, first.steps[0].action)
    assert again.steps[0].thought == first.steps[0].thought and again.extra == first.extra


@given(st.lists(st.sampled_from([*TOKENS, "<", "[", " ", "|", ">", "a", "< |im_end|>", "[  INST]"]), max_size=8))
def test_a_broken_text_holds_no_token_and_is_restored_exactly(parts: list[str]) -> None:
    text = "".join(parts)
    assert restored(plain(text)) == text
    assert not any(token in plain(text) for token in TOKENS)


def test_a_correction_is_broken_in_its_row_and_exact_in_the_metadata(tmp_path: Path) -> None:
    folder = written(FORMATS.class_of("scalecua")(), [replace(record(), extra={})], tmp_path)
    lines = [json.loads(line) for line in (folder / "scalecua.jsonl").read_text().splitlines()]
    (row,) = [one for one in lines if "c< |im_end|>" in one["conversations"][1]["value"]]
    assert "p< |im_end|>" in row["conversations"][1]["value"]
