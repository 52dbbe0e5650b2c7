"""Runs the vision-language policy: any Hugging Face image-text-to-text directory, its family and its backend."""

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from models.completion import Completion
from models.families.family import TinyFamily
from models.families.processor import require_same_prompt
from models.families.prompt import Message
from models.families.registry import family_of
from models.families.screen import Size
from models.language_model import BACKENDS
from models.policy import Context, Policy
from models.tiny.layout import is_tiny, read_config
from schemas.config.policy import PolicyConfig
from schemas.failure import ServerFailure, UsageError
from schemas.observation import Observation
from schemas.registry import options_of

CUT = "the reply was cut at"
"""Beginning of the error of a reply that reached its maximum of tokens."""


ANSWERED = 16
"""Questions that a model without a server answers at once."""


class VlmPolicy(Policy):
    """A policy that acts with a checkpoint.

    Args:
        directory: a pretrained model of `transformers`; `AutoProcessor` must be able to load it, too.
        config: the backend, the family, screens shown, tokens per completion.
        version: the name under which the policy is recorded.

    Raises:
        CheckpointError: the directory is missing or broken, or its architecture is not supported.
        UsageError: the backend or family does not exist, or does not fit this checkpoint.
    """

    def __init__(self, directory: Path, config: PolicyConfig, version: str = "") -> None:
        self.version = version or directory.name
        self._directory, self._config, self._compared = directory, config, False
        self.family = family_of(config, directory)
        self.dialect = self.family.dialect
        backend = BACKENDS.class_of(backend_of(config, directory))
        options_of(backend.options, config.options, "policy.options")
        self.model = backend(directory, config, self.version)
        self.max_concurrency, self.remote = self.model.max_concurrency, self.model.remote
        self._max_tokens = config.max_new_tokens or self.family.reply_tokens(config.template)
        self._thinks = config.thoughts

    def renewed(self, directory: Path, version: str) -> "VlmPolicy":
        """Returns a policy with other weights of the same kind of model, which takes over from this one at its `begin`.

        Raises:
            CheckpointError: the directory is missing or broken.
        """
        made = copy.copy(self)
        made.version, made._directory, made._compared = version, directory, False
        made.model = self.model.renewed(directory, self._config, version)
        return made

    def begin(self) -> None:
        """Loads the policy's weights on a backend that holds one model at a time."""
        self.model.begin()

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        """Returns one completion per context, each sampled with its context's seed.

        Raises:
            FlywheelError: a server reports other tokens than the trainer (`require_same_prompt`).
        """
        if not contexts:
            return []
        chats = [self.family.chat(replace(one, thinks=self._thinks and one.thinks)) for one in contexts]
        made = self.model.generate(chats, [context.seed for context in contexts], temperature, self._max_tokens)
        self._compare(chats, made)
        screens = [(context.observation.width, context.observation.height) for context in contexts]
        return [self._read(completion, screen) for completion, screen in zip(made, screens, strict=True)]

    def answer(self, questions: Sequence[tuple[str, Observation]]) -> list[str]:
        """Returns the greedy answers to questions about one screen or image each, without a reasoning before them.

        Raises:
            ServerFailure: the policy's server gave no answer.
        """
        chats = [self.family.question(text, [picture]) for text, picture in questions]
        at_once = 1 if self.max_concurrency else ANSWERED
        chunks = [chats[begin : begin + at_once] for begin in range(0, len(chats), at_once)]
        with ThreadPoolExecutor(max(1, self.max_concurrency)) as threads:
            made = threads.map(lambda one: self.model.generate(one, [0] * len(one), 0.0, self._max_tokens), chunks)
            completions = [completion for chunk in made for completion in chunk]
        if failed := next((one.failure for one in completions if one.failure), None):
            raise ServerFailure(failed)
        return [one.text.rpartition("</think>")[2].strip() for one in completions]

    def _compare(self, chats: Sequence[Sequence[Message]], made: Sequence[Completion]) -> None:
        """Compares the first prompt whose tokens are known; one is enough, since all prompts of a checkpoint are made
        in the same way."""
        known = next((pair for pair in zip(chats, made, strict=True) if pair[1].prompt_ids), None)
        if known and not self._compared:
            require_same_prompt(self._directory, known[0], known[1].prompt_ids)
            self._compared = True

    def _read(self, completion: Completion, screen: Size) -> Completion:
        """Reads a completion with the family; a reply that was cut counts as a reply without an action.

        The small policy has learned to end within its few tokens, so its text counts even if it was cut.
        """
        read = replace(self.family.read(completion, screen), family=self.family.name, prompt_ids=())
        if not completion.cut or isinstance(self.family, TinyFamily):
            return read
        error = f"{CUT} {self._max_tokens} tokens (policy.max_new_tokens)"
        return replace(read, actions=(), dropped=(), error=error)


def backend_of(config: PolicyConfig, directory: Path) -> str:
    """Chooses the backend for `policy.backend=auto`.

    It is a server if one is configured, else the small policy's network for its checkpoints, else `transformers`.

    Raises:
        UsageError: `transformers` cannot read the config's prompts of the small policy.
    """
    if config.acts_on_server:
        return "server"
    small = is_tiny(read_config(directory)) if config.backend in ("auto", "transformers") else False
    if config.backend == "transformers" and small and config.context_rule.live > 1:
        raise UsageError(
            "`policy.backend` is transformers, which takes adjacent screens for one and gives others grids of their "
            f"own, and a prompt of the small policy shows up to {config.context_rule.live} screens on one grid.",
            "Remove policy.backend, or set policy.history_images to 1.",
        )
    if config.backend != "auto":
        return config.backend
    return "tiny" if small else "transformers"
