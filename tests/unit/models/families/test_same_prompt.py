"""A server that reads another prompt than the trainer is refused, with the place where they part."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from models.completion import Completion
from models.families.family import ModelFamily
from models.families.processor import prompt_tokens, require_same_prompt
from models.families.prompt import Message
from models.families.registry import family_of
from models.language_model import LanguageModel
from models.vlm import VlmPolicy
from schemas.action import Wait
from schemas.config.policy import PolicyConfig
from schemas.failure import FlywheelError
from tests.unit.models.families.published import context, write_directory


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_directory("qwen2_5_vl", tmp_path_factory.mktemp("published"))


def chat_of(directory: Path) -> list[Message]:
    family: ModelFamily = family_of(PolicyConfig(base=str(directory), family="ui-tars-1.5", history_images=2))
    return family.messages(context(family))


def test_the_same_tokens_pass(directory: Path) -> None:
    chat = chat_of(directory)
    require_same_prompt(directory, chat, tuple(prompt_tokens(directory, chat)))


def test_another_chat_template_is_named_by_where_it_begins(directory: Path) -> None:
    chat = chat_of(directory)
    without_system = prompt_tokens(directory, chat)[14:]
    with pytest.raises(FlywheelError, match=r"from token 0 on \(\d+ tokens, not .*own chat template"):
        require_same_prompt(directory, chat, without_system)


def test_a_picture_of_another_size_and_a_prompt_cut_short_are_seen(directory: Path) -> None:
    chat, ours = chat_of(directory), prompt_tokens(directory, chat_of(directory))
    picture = max(set(ours), key=ours.count)
    at = ours.index(picture)
    with pytest.raises(FlywheelError, match=rf"{len(ours) - 1} tokens, not {len(ours)}"):
        require_same_prompt(directory, chat, [*ours[:at], *ours[at + 1 :]])
    with pytest.raises(FlywheelError, match=f"from token {len(ours) - 1} on"):
        require_same_prompt(directory, chat, ours[:-1])


class Telling(LanguageModel):
    """Answers `wait()` and says what it read: without the last token if the option says so."""

    def __init__(self, directory: Path, config: PolicyConfig, version: str) -> None:
        self.directory, self.cut = directory, bool(config.max_new_tokens == 1)

    def generate(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Completion]:
        """One per chat."""
        read = [prompt_tokens(self.directory, chat) for chat in chats]
        return [Completion("Action: wait()", prompt_ids=tuple(ids[: -1 if self.cut else None])) for ids in read]


def test_a_policy_whose_server_says_what_it_read_is_refused_where_that_is_another_prompt(directory: Path) -> None:
    policy = PolicyConfig(base=str(directory), family="ui-tars-1.5", backend=f"{__name__}:Telling")
    met = context(family_of(policy))
    (reply,) = VlmPolicy(directory, policy).act([met])
    assert (reply.first, reply.prompt_ids) == (Wait(), ())
    with pytest.raises(FlywheelError, match="another prompt than the trainer"):
        VlmPolicy(directory, policy.model_copy(update={"max_new_tokens": 1})).act([met])
