"""Replies that were played, as tokens of any model directory: the chat as it was played, and the tokens as drawn."""

from collections.abc import Sequence
from pathlib import Path

from learning.data.rollouts import Rollout
from learning.data.sample import Screenshots
from learning.engines.fsdp.chats import Chat, Encoder
from models.families.dialects import format_action, format_reply, parse_reply
from models.families.prompt import messages_of
from models.policy import Context
from schemas.config.sections import PolicyConfig
from schemas.failure import FlywheelError
from schemas.observation import Observation, Turn

_NO_TEXT = ("image_token_id", "video_token_id", "vision_start_token_id")


class ReplyChats(Encoder[Rollout]):
    """Encodes rollouts for the model of a directory.

    A reply that no model drew is encoded from its text; its coordinates are thousandths of the screen, and are written
    as pixels for models that write pixels.
    """

    def __init__(self, directory: Path, policy: PolicyConfig, screenshots: Screenshots, seed: int) -> None:
        super().__init__(directory, policy, screenshots, seed)
        text = self._config.get("text_config", self._config)
        self._vocabulary = int(text.get("vocab_size", len(self._tokenizer)))
        self._marks = {self._config[name] for name in _NO_TEXT if name in self._config}

    def encode(self, sample: Rollout) -> Chat:
        """The chat and the reply.

        Raises:
            FlywheelError: a missing screenshot, a reply without tokens, or tokens that the model does not have.
        """
        sizes = self._sizes(sample)
        said = list(sample.token_ids) or self._encoded(sample, sizes[-1])
        where = f"step {sample.step} of {sample.trajectory_id} ({sample.task_id})"
        if not said:
            raise FlywheelError(f"{where}: an empty reply.", "Delete that trajectory.")
        if max(said) >= self._vocabulary:
            raise FlywheelError(
                f"{where}: token {max(said)} of a model with {self._vocabulary} tokens.",
                "The reply was drawn with another tokenizer; train the model that played.",
            )
        chat = self._chat(messages_of(self._context(sample, sizes), len(sizes), self._policy.dialect), sizes, said)
        reply = chat.ids[len(chat.ids) - len(said) + 1 :]
        for at, token in enumerate(reply.tolist()):
            if token in self._marks:  # there is no screen behind it: it is read as the end of a turn, and said as drawn
                reply[at] = self._end
        return Chat(chat.ids, chat.targets, chat.grids, chat.kinds, sample.temperature)

    def _shown(self, sample: Rollout) -> Sequence[str]:
        return sample.screenshots

    def _context(self, sample: Rollout, sizes: Sequence[tuple[int, int]]) -> Context:
        """What the policy knew when it was asked."""
        shown = [Observation(b"", *size, "") for size in sizes]
        replies = [parse_reply(text) for text in sample.said]
        past = ([shown[0]] * (len(replies) + 1 - len(shown)) + shown)[: len(replies)]
        turns = [Turn(reply.thought, reply.action_text, screen) for reply, screen in zip(replies, past, strict=True)]
        return Context(sample.instruction, tuple(turns), shown[-1], 0)

    def _encoded(self, rollout: Rollout, size: tuple[int, int]) -> list[int]:
        text = rollout.reply
        parsed = parse_reply(text)
        if self._absolute and parsed.action is not None:
            action = format_action(parsed.action, self._policy.dialect, absolute=size)
            text = format_reply(parsed.thought, action)
        return [*self._words(text), *([self._end] if rollout.ended else [])]
