"""A backend (`policy.backend=tests.clicker:Clicker`) that succeeds in the fake sandbox as often as it is asked to.

Its tokens are those of the checkpoint that it stands for.
"""

import io
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from environments.fake import COLOURS
from models.completion import Completion
from models.families.prompt import Message, screens_of
from models.families.registry import family_of
from models.language_model import LanguageModel
from models.tiny.generator import read_tokenizer, token_id
from models.tiny.tokens import END
from schemas.action import Action, Click, Type, Wait
from schemas.config import Config, config_of
from schemas.config.policy import PolicyConfig
from schemas.config.section import Section
from schemas.observation import Observation
from schemas.registry import options_of


class ClickerOptions(Section):
    share: float
    pause_s: float = 0.0


class Clicker(LanguageModel):
    """Sees the button that it is asked for and hits it in a share of its samples."""

    options = ClickerOptions

    def __init__(self, directory: Path, config: PolicyConfig, version: str) -> None:
        self._options = options_of(ClickerOptions, config.options, "policy.options")
        self._family, self._tokenizer = family_of(config, directory), read_tokenizer(directory)

    def generate(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Completion]:
        time.sleep(self._options.pause_s)
        return [self._completion(chat, seed) for chat, seed in zip(chats, seeds, strict=True)]

    def _completion(self, chat: Sequence[Message], seed: int) -> Completion:
        turns = sum(message["role"] == "assistant" for message in chat)
        seen = screens_of(list(chat))[-1]
        text = self._family.reply("", [self._action(seen, turns, seed)], (seen.width, seen.height))
        tokens = (*self._tokenizer.encode(text).ids, token_id(self._tokenizer, END))
        return Completion(text, tokens, tuple(-0.5 for _ in tokens))

    def _action(self, seen: Observation, turns: int, seed: int) -> Action:
        quoted = seen.instruction.split('"')[1]
        if quoted not in COLOURS:
            return _note(quoted, turns, seed)
        place = _button(seen, quoted) if seed % 1000 < 1000 * self._options.share else (0.01, 0.99)
        return Click(x=place[0], y=place[1])


def clicked(config: Config, share: float, pause_s: float = 0.0) -> Config:
    """The config with a clicker for every policy, of this share of hits; its log probabilities are made up."""
    fields = config.model_dump()
    for method in ("group", "ppo"):
        fields["train"][method] |= {"most_mismatch": None}
    options = {"share": share, "pause_s": pause_s}
    return config_of(fields | {"policy": fields["policy"] | {"backend": f"{__name__}:Clicker", "options": options}})


def _note(asked: str, turns: int, seed: int) -> Action:
    """Clicks the field, then writes none, one or both of the words that are asked for."""
    if not turns:
        return Click(x=0.5, y=0.33)
    return Type(content=" ".join(asked.split()[: seed % 3])) if turns == 1 else Wait()


def _button(seen: Observation, colour: str) -> tuple[float, float]:
    pixels = np.asarray(Image.open(io.BytesIO(seen.png)).convert("RGB"))
    rows, columns = np.nonzero((pixels == COLOURS[colour]).all(axis=2))
    return float(columns.mean() / pixels.shape[1]), float(rows.mean() / pixels.shape[0])
