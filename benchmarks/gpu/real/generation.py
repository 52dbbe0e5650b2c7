"""Time rounds of generated replies: `python -m benchmarks.gpu.real.generation SPEC.json ours|generate first|later`.

`ours` is a policy's local generator, `generate` that of `transformers` with the same prompts, sampled as TRL samples:
temperature 1 and no filters. Both are timed from PNG files and texts to decoded replies. `first` asks about new screens
each round. `later` continues trajectories: each step's prompt holds the steps before it, with their screens and written
replies, and first steps are not counted.
"""

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForImageTextToText, GenerationConfig

from benchmarks.trl.clock import Clock
from benchmarks.trl.workload import drawn_screen
from models.families.processor import read_processor
from models.families.registry import family_of
from models.families.screen import picture
from models.policy import Context
from models.precision import compute_dtype
from models.safe import read_whole
from models.vlm import VlmPolicy
from schemas.config.policy import PolicyConfig
from schemas.observation import Observation, PastStep

INSTRUCTION = 'Click on the "{}" button.'
THOUGHT, ACTION = "The page is still loading. Wait.", "wait()"
Round = tuple[bool, list[Context]]
"""Whether the round counts, and its prompts."""


def contexts_of(spec: dict[str, Any], later: bool) -> Iterator[Round]:
    """Yield the prompts of each round: of new screens, or of the steps of new trajectories."""
    draw, rows, (width, height) = random.Random(0), range(spec["batch"]), spec["size"]
    for number in range(spec["rounds"]):
        turns: list[tuple[PastStep, ...]] = [() for _ in rows]
        for step in range(spec["steps"] if later else 1):
            contexts = list[Context]()
            for row in rows:
                pngs = dict[str, bytes]()
                digest = drawn_screen(draw, (width, height), pngs)
                text = INSTRUCTION.format(f"{number}-{row}")
                screen = Observation(pngs[digest], width, height, text)
                contexts.append(Context(text, turns[row], screen, seed=1000 * number + 100 * step + row))
                turns[row] += (PastStep(THOUGHT, ACTION, screen),)
            yield not later or step > 0, contexts


class Ours:
    """Answers by a policy with the local generator."""

    def __init__(self, model: Path, config: PolicyConfig) -> None:
        self._policy = VlmPolicy(model, config)

    def __call__(self, contexts: Sequence[Context]) -> list[int]:
        """Return the number of tokens of each reply."""
        return [len(one.token_ids) for one in self._policy.act(contexts, 1.0)]


class Generate:
    """Answers by `generate` of `transformers`."""

    def __init__(self, model: Path, config: PolicyConfig) -> None:
        self._family, self._processor = family_of(config, model), read_processor(model)
        self._model: Any = read_whole(AutoModelForImageTextToText, model).eval().to(config.device)
        if config.device == "cpu":
            self._model.to(compute_dtype())
        known = self._model.generation_config
        self._ends = known.eos_token_id
        self._settings = GenerationConfig(
            max_new_tokens=config.max_new_tokens, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
            eos_token_id=known.eos_token_id, pad_token_id=known.pad_token_id,
        )  # fmt: skip

    @torch.inference_mode()
    def __call__(self, contexts: Sequence[Context]) -> list[int]:
        """Return the number of tokens of each reply."""
        chats = [self._family.chat(one) for one in contexts]
        inputs = self._processor.apply_chat_template(
            [[_with_pictures(message) for message in chat] for chat in chats],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True, "padding_side": "left"},
        ).to(self._model.device)
        made = self._model.generate(**inputs, generation_config=self._settings)[:, inputs["input_ids"].shape[1] :]
        self._processor.batch_decode(made, skip_special_tokens=True)
        return [_length(row, self._ends) for row in made.tolist()]


def _with_pictures(message: Any) -> Any:

    def shown(part: Any) -> Any:
        if part["type"] != "image":
            return part
        return {"type": "image", "image": picture(part["observation"].png, part.get("limits"))}

    return {**message, "content": [shown(part) for part in message["content"]]}


def _length(ids: Sequence[int], end: int) -> int:
    return ids.index(end) + 1 if end in ids else len(ids)


def main() -> None:
    """Answer every round, and print the numbers."""
    path, side, which = sys.argv[1:]
    spec, later = json.loads(Path(path).read_text()), which == "later"
    config = PolicyConfig(
        batch=spec["batch"], device=spec["device"], max_new_tokens=spec["tokens"], history_images=spec["steps"],
        prefix_mb=spec["prefix_mb"],
    )  # fmt: skip
    answer = (Ours if side == "ours" else Generate)(Path(spec["model"]), config)
    clock = Clock(spec["batch"])
    clock.facts |= {"tokens": [], "warm": spec["steps"] - 1 if later else spec["warm"]}
    clock.begin()
    for counts, contexts in contexts_of(spec, later):
        clock.resume()
        lengths = answer(contexts)
        if counts:
            clock.facts["tokens"].append(sum(lengths) / len(lengths))
            clock.end()


if __name__ == "__main__":
    main()
