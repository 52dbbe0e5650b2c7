"""Count the tokens of a trajectory's prompts and training for a window that slides, for folding, and for no limit.

Prefilled tokens are those behind the prefix that a prompt shares with the last prompt and its reply. Training tokens
are those of the sequences: a slice between two folds, or one row a step where the prompts of two steps part. Rows are
measured on the chat templates of published checkpoints, by token ids and without weights, and computed by the formulas
of `schemas.context`.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Bar, finish, options
from models.families.family import ModelFamily
from models.families.processor import PromptTokens, read_processor
from models.families.registry import family_of
from models.families.thinking import OPEN
from models.policy import Context
from schemas.action import Wait
from schemas.config.policy import PolicyConfig
from schemas.context import ContextRule
from schemas.observation import Observation, PastStep
from tests.unit.models.families.published import write_directory

SCREEN = (1920, 1080)
PICTURE, TEXT, HEAD, REPLACED = 2040, 300, 4000, 10
"""Tokens of the formulas: of a screen, of a step's texts, before the first screen, and in a folded screen's place."""
LENGTHS = (10, 35, 100)
FAMILIES = {"qwen3-vl": "qwen3_vl", "qwen3.5": "thinking"}
MOST_PREFILL, MOST_TRAINED = 1 / 8, 1 / 7


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens of one trajectory."""

    prefilled: int
    longest: int
    rows: int
    """Training tokens with one row a step."""
    trained: int
    """Training tokens with one sequence for all steps whose tokens begin alike."""


def main() -> int:
    """Counts, prints; exit code 1 if a bar is missed."""
    given = options(__doc__ or "")
    rows, found = list[dict[str, Any]](), dict[tuple[str, int, str], Totals]()
    sources = ["formulas", *(list(FAMILIES)[:1] if given.short else FAMILIES)]
    for source in sources:
        with tempfile.TemporaryDirectory() as folder:
            for name, policy in _policies(max(LENGTHS)).items():
                steps = _computed(policy.context_rule) if source == "formulas" else _measured(source, policy, folder)
                for count, totals in _totals(steps).items():
                    found[source, count, name] = totals
    for (source, count, name), one in sorted(found.items(), key=lambda item: (sources.index(item[0][0]), item[0][1])):
        kept = {"prefilled": one.prefilled, "longest prompt": one.longest, "training": one.trained, "rows": one.rows}
        rows.append({"tokens of": source, "steps": count, "context": name, **kept})
    bars = list[Bar]()
    for source in sources:
        prefill = found[source, 100, "fold"].prefilled / found[source, 100, "slide"].prefilled
        training = found[source, 35, "fold"].trained / found[source, 35, "fold"].rows
        bars += [
            Bar(f"{source}: prefill of folding over sliding, 100 steps", prefill, MOST_PREFILL, "lower"),
            Bar(f"{source}: training over one row a step, 35 steps", training, MOST_TRAINED, "lower"),
        ]
    return finish("context", rows, bars, given, [rows])


def _policies(most: int) -> dict[str, PolicyConfig]:
    return {
        "slide": PolicyConfig(history_images=20),
        "fold": PolicyConfig(context="fold"),
        "no limit": PolicyConfig(history_images=most),
    }


Tokens = np.ndarray[Any, np.dtype[np.int64]]
Step = tuple[Tokens, int]
"""Tokens of a prompt with its reply, and the length of the prompt."""


def _totals(steps: Iterator[Step]) -> dict[int, Totals]:
    """Adds up the tokens after each of these numbers of steps."""
    found = dict[int, Totals]()
    before: Tokens = np.empty(0, dtype=np.int64)
    prefilled = longest = rows = trained = 0
    for number, (tokens, prompt) in enumerate(steps, 1):
        shared = _shared(before, tokens[:prompt])
        prefilled, longest = prefilled + prompt - shared, max(longest, prompt)
        rows, trained = rows + len(tokens), trained + len(tokens) - (len(before) if shared == len(before) else 0)
        before = tokens
        if number in LENGTHS:
            found[number] = Totals(prefilled, longest, rows, trained)
    return found


def _shared(one: Tokens, other: Tokens) -> int:
    """Counts the tokens that both begin with."""
    size = min(len(one), len(other))
    differ = one[:size] != other[:size]
    return int(differ.argmax()) if differ.any() else size


def _computed(rule: ContextRule) -> Iterator[Step]:
    """Yields each step's tokens as numbers of their step and kind."""
    for screens in range(1, max(LENGTHS) + 1):
        folded, parts = rule.folded(screens), [np.zeros(HEAD, dtype=np.int64)]
        for at in range(screens):
            replaced = REPLACED if rule.folds and at else 0
            parts.append(np.full(PICTURE, 2 * at + 2) if at >= folded else np.ones(replaced, dtype=np.int64))
            parts.append(np.full(TEXT, -at - 1))
        tokens = np.concatenate(parts)
        yield tokens, len(tokens) - TEXT


def _measured(name: str, policy: PolicyConfig, folder: str) -> Iterator[Step]:
    """Yields each step's tokens by a checkpoint's own processor; a screen's tokens are numbered by its step."""
    directory = Path(folder) / name
    if not directory.exists():
        write_directory(FAMILIES[name], directory)
    family = family_of(policy.model_copy(update={"base": str(directory), "family": name}))
    processor = read_processor(directory)
    tokens = PromptTokens(processor, family.limits)
    picture = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    turn = PastStep(_thought(processor, family), family.write(Wait(), SCREEN), Observation(b"", *SCREEN, ""))
    reply = _reply(processor, family, turn.thought)
    for past in range(max(LENGTHS)):
        context = Context("Open the settings and turn the night mode on.", (turn,) * past, turn.observation, 0)
        prompt = tokens(family.chat(context))
        first = policy.context_rule.folded(past + 1)
        yield _numbered([*prompt, *reply], picture, first), len(prompt)


def _thought(processor: Any, family: ModelFamily) -> str:
    """Returns a thought with which a reply has about `TEXT` tokens."""
    words = 1
    while True:
        thought = f"{' '.join(['setting'] * words)}\n\nAction: Wait."
        size = len(_reply(processor, family, thought))
        if size >= TEXT:
            return thought
        words += max(1, (TEXT - size) // 8)


def _reply(processor: Any, family: ModelFamily, thought: str) -> list[int]:
    """Returns the tokens of a reply, behind a prompt that has opened its thinking."""
    text = family.reply(thought, [Wait()], SCREEN).removeprefix(f"{OPEN}\n")
    return processor.tokenizer(text, add_special_tokens=False)["input_ids"]


def _numbered(tokens: list[int], picture: int, first: int) -> Tokens:
    """Replaces the tokens of each screen by a number of its step, so that two pictures differ."""
    made = np.array(tokens, dtype=np.int64)
    inside = made == picture
    begins = inside & ~np.concatenate([[False], inside[:-1]])
    return np.where(inside, -(first + begins.cumsum()), made)


if __name__ == "__main__":
    raise SystemExit(main())
