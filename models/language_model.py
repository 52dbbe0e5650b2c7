"""Defines the interface between a policy and the backend of its network: chats in, completions out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from models.completion import Completion
from models.families.prompt import Message
from schemas.config.policy import PolicyConfig
from schemas.config.section import Section
from schemas.registry import Registry


class LanguageModel(ABC):
    """Continues chats; made from the checkpoint's directory, `policy.*` and the policy's version.

    Raises:
        CheckpointError: the directory is missing or broken, or its architecture is not supported.
    """

    options: type[Section] = Section
    """Section of the backend's own keys under `policy.options`; without keys by default."""
    max_concurrency: int = 0
    """Maximum calls at once, with one chat each; 0 means one batch at a time."""
    remote: bool = False
    """Whether another process answers, so that nothing waits for it at the end."""

    @abstractmethod
    def __init__(self, directory: Path, config: PolicyConfig, version: str) -> None: ...

    def begin(self) -> None:  # noqa: B027  (most have nothing to do)
        """Does for a backend that holds one model at a time what `models.policy.Policy.begin` describes."""

    def renewed(self, directory: Path, config: PolicyConfig, version: str) -> "LanguageModel":
        """Returns a model of other weights of the same kind, which takes over from this one at its `begin`."""
        return type(self)(directory, config, version)

    @abstractmethod
    def generate(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Completion]:
        """Returns one completion of at most `max_tokens` tokens per chat, sampled with its seed; temperature 0 is
        greedy.

        Thought and action are read later, by the model's family.
        """


BACKENDS = Registry(
    "policy.backend",
    LanguageModel,
    {
        "tiny": "models.tiny.generator:TinyModel",
        "transformers": "models.serving.local:TransformersModel",
        "server": "models.serving.server:ServerModel",
    },
)
"""Backends that run a checkpoint, by name."""
