"""A policy for the fake sandbox that succeeds as often as it is told to; its tokens are those of a real checkpoint."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from environments.fake.sandbox import COLOURS
from models.families.dialects import format_action, parse_reply
from models.policy import Context, Policy, Reply
from models.tiny.speaker import read_tokenizer, token_id
from models.tiny.tokens import END
from schemas.action import Action, Click, Type, Wait


class Clicker(Policy):
    """Sees the button that it is asked for and hits it in a share of its draws."""

    dialect = "box_v1"

    def __init__(self, checkpoint: Path, version: str, share: float) -> None:
        self.version, self._share = version, share
        self._tokenizer = read_tokenizer(checkpoint)

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Reply]:
        return [self._reply(context) for context in contexts]

    def _reply(self, context: Context) -> Reply:
        text = f"Action: {format_action(self._action(context), self.dialect, 10)}"
        parsed = parse_reply(text)
        tokens = (*self._tokenizer.encode(text).ids, token_id(self._tokenizer, END))
        logprobs = tuple(-0.5 for _ in tokens)
        return Reply(text, parsed.thought, parsed.action_text, parsed.action, None, tokens, logprobs)

    def _action(self, context: Context) -> Action:
        hit = context.seed % 1000 < 1000 * self._share
        quoted = context.observation.instruction.split('"')[1]
        if quoted not in COLOURS:
            return _note(context, quoted)
        place = _button(context) if hit else (0.01, 0.99)
        return Click(x=place[0], y=place[1])


def _note(context: Context, asked: str) -> Action:
    """Clicks the field, then writes none, one or both of the words that are asked for."""
    if not context.turns:
        return Click(x=0.5, y=0.33)
    return Type(content=" ".join(asked.split()[: context.seed % 3])) if len(context.turns) == 1 else Wait()


def _button(context: Context) -> tuple[float, float]:
    colour = COLOURS[context.observation.instruction.split('"')[1]]
    pixels = np.asarray(Image.open(io.BytesIO(context.observation.png)).convert("RGB"))
    rows, columns = np.nonzero((pixels == colour).all(axis=2))
    return float(columns.mean() / pixels.shape[1]), float(rows.mean() / pixels.shape[0])
