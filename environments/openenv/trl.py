"""Define an `environment_factory` for TRL's GRPOTrainer: its tools act in a served sandbox, over the wire's client.

TRL makes objects without arguments and resets each with a row of the dataset. It offers an object's public methods to
the model as tools, and never closes an object. A tool's answer is a picture and a text. This module can be imported
without TRL.

TRL counts the tokens of a tool's answer as part of the completion. It silently ends a rollout before an answer that
would exceed `max_completion_length`. So this value must be large enough for the replies and screenshots of a whole
episode; otherwise, the first reset raises an error.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from PIL import Image

from common.picture import upright_rgb_of
from common.text import broken
from environments.openenv.client import INVALID, Fields, ServerLost, ServerRefused, StepResponse, as_written
from environments.openenv.wire import BlockingClient
from schemas.failure import UsageError

Shown = list[dict[str, Any]]
REPLY = 128
"""Tokens reserved in a completion for one reply and the text next to its screenshot."""
_CALL = [
    {"role": "user", "content": [{"type": "text", "text": "Go."}]},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": ""}],
        "tool_calls": [{"type": "function", "function": {"name": "type_text", "arguments": {"text": "written"}}}],
    },
]
"""A conversation with a tool call."""


def trl_environment(
    url: str, args: Any, processor: Any, token: str | None = None, wait_s: float = 60.0
) -> Callable[[], "GuiTools"]:
    """Makes the class for `environment_factory`.

    Args:
        url: the server's base URL.
        args: the trainer's `GRPOConfig`.
        processor: the trainer's `processing_class`.
        token: token that the server requires, if any.
        wait_s: limit of one answer, in seconds.

    Raises:
        UsageError: the processor's chat template writes no tool calls.
    """
    require_tools(processor)
    colocated = getattr(args, "use_vllm", False) and getattr(args, "vllm_mode", None) == "colocate"
    length = getattr(args, "vllm_max_model_length", None) if colocated else None
    room = Room(args.max_completion_length, getattr(args, "max_tool_calling_iterations", None), processor, length)

    class Served(GuiTools):
        def __init__(self) -> None:
            super().__init__(BlockingClient(url, token, wait_s), room)

    return Served


def require_tools(processor: Any) -> None:
    """Raises `UsageError` if the processor's chat template does not write tool calls."""
    if "type_text" not in processor.apply_chat_template(_CALL, tokenize=False):
        raise UsageError(
            "The processor's chat template writes no tool calls, such as that of Qwen2.5-VL.",
            "Train a model whose template does, such as Qwen3-VL.",
        )


@dataclass
class Room:
    """Checks that a completion of TRL's trainer has room for whole episodes.

    Args:
        tokens: `max_completion_length`.
        actions: `max_tool_calling_iterations`, or None for the task's step limit.
        processor: counts the tokens of a screenshot and of the prompt.
        length: `vllm_max_model_length` if TRL runs vLLM in its own process, which also limits prompt and completion
            together; None if the model's own length limits them.
    """

    tokens: int
    actions: int | None
    processor: Any
    length: int | None = None
    _pictures: dict[tuple[int, int], int] = field(default_factory=dict)

    def require(
        self,
        picture: Image.Image,
        max_steps: int,
        prompt: Sequence[dict[str, Any]] = (),
        tools: Sequence[Callable[..., Any]] = (),
    ) -> None:
        """Checks that an episode of these screenshots fits.

        Args:
            picture: the first screenshot.
            max_steps: step limit of the task.
            prompt: the turns before the first reply, without pictures.
            tools: the model's tools, whose schemas the chat template writes into the prompt.

        Raises:
            UsageError: the episode does not fit; the message names the value to set.
        """
        actions = max_steps if self.actions is None else min(max_steps, self.actions)
        each = self._tokens(picture) + REPLY
        if self.tokens < actions * each:
            size = f"{picture.width}x{picture.height}"
            raise UsageError(
                f"`max_completion_length` is {self.tokens}: TRL counts screenshots in it, and would end this episode "
                f"after {self.tokens // each} of {actions} actions ({each - REPLY} tokens a screenshot of {size}).",
                f"Set max_completion_length to {actions * each} or more, or max_tool_calling_iterations to fewer "
                "actions.",
            )
        if self.length is None:
            return
        begun = self._begun(picture, prompt, tools)
        needed = begun + actions * each + 1  # TRL drops a completion that reaches the length
        if self.length < needed:
            raise UsageError(
                f"`vllm_max_model_length` is {self.length}: TRL would end this episode before its {actions} actions, "
                f"which take {needed} tokens, {begun} of them for the prompt, the tools and the first screenshot.",
                f"Set vllm_max_model_length to {needed} or more.",
            )

    def _begun(
        self, picture: Image.Image, prompt: Sequence[dict[str, Any]], tools: Sequence[Callable[..., Any]]
    ) -> int:
        """Counts the tokens of the prompt before the model's first reply."""
        turns = [*prompt, {"role": "user", "content": [{"type": "image", "image": picture}]}]
        given = {"tools": list(tools)} if tools else {}
        template = {"tokenize": True, "return_dict": True, "add_generation_prompt": True}
        return len(self.processor.apply_chat_template(turns, **given, **template)["input_ids"][0])

    def _tokens(self, picture: Image.Image) -> int:
        if picture.size not in self._pictures:
            parts = [{"type": "image", "image": picture}], [{"type": "text", "text": ""}]
            template = {"tokenize": True, "return_dict": True}
            with_it, without = (
                self.processor.apply_chat_template([{"role": "user", "content": part}], **template)["input_ids"][0]
                for part in parts
            )
            self._pictures[picture.size] = len(with_it) - len(without)
        return self._pictures[picture.size]


def _texts(prompt: Any) -> list[dict[str, Any]]:
    turns = list[dict[str, Any]]()
    for turn in [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt or ():
        parts = turn["content"]
        parts = [{"type": "text", "text": parts}] if isinstance(parts, str) else parts
        turns.append({"role": turn["role"], "content": [part for part in parts or () if part.get("type") == "text"]})
    return turns


class GuiTools:
    """One session, which reads `task_id` and `seed` of a row of the dataset.

    Args:
        client: client of the server.
        room: checks the room of a completion.
    """

    def __init__(self, client: BlockingClient, room: Room) -> None:
        self._client, self._room = client, room
        self._reward: float | None = 0.0
        self._over = False

    def reset(self, **row: Any) -> Shown:
        """Begins an episode.

        Raises:
            Refused: the task or seed does not exist.
            Lost: the server does not answer.
            UsageError: the trainer's completions are too short for the episode.
        """
        fields = {key: row[key] for key in ("task_id", "seed") if row.get(key) is not None}
        self._reward, self._over = 0.0, False
        answer = self._client.reset(**fields)
        shown = self._turn_of(answer, str(answer.observation.get("instruction", "")))
        picture, *content = shown
        asked = [*_texts(row.get("prompt")), {"role": "user", "content": content}]
        self._room.require(picture["image"], int(answer.metadata.get("max_steps", 1)), asked, self._tools())
        return shown

    def _tools(self) -> list[Callable[..., Any]]:
        """Lists the methods that TRL offers to a model."""
        names = [name for name in dir(self) if not name.startswith("_") and name not in ("reset", "get_reward")]
        return [getattr(self, name) for name in names]

    def get_reward(self) -> float | None:
        """Returns the reward of the episode: 0 before its end, and None after an outage, which TRL leaves out."""
        return self._reward

    def click(self, x: float, y: float) -> Shown:
        """Clicks a point of the screen.

        Args:
            x: Distance from the left edge, as a fraction of the screen's width from 0 to 1.
            y: Distance from the top edge, as a fraction of the screen's height from 0 to 1.
        """
        return self._act({"type": "click", "x": x, "y": y})

    def drag(self, x: float, y: float, to_x: float, to_y: float) -> Shown:
        """Presses at a point of the screen, moves, and lets go at another.

        Args:
            x: Where to press, as a fraction of the screen's width from 0 to 1.
            y: Where to press, as a fraction of the screen's height from 0 to 1.
            to_x: Where to let go, as a fraction of the screen's width from 0 to 1.
            to_y: Where to let go, as a fraction of the screen's height from 0 to 1.
        """
        return self._act({"type": "drag", "x": x, "y": y, "to_x": to_x, "to_y": to_y})

    def scroll(self, x: float, y: float, direction: Literal["up", "down", "left", "right"]) -> Shown:
        """Scrolls at a point of the screen.

        Args:
            x: Distance from the left edge, as a fraction of the screen's width from 0 to 1.
            y: Distance from the top edge, as a fraction of the screen's height from 0 to 1.
            direction: Where the view goes: up, down, left or right.
        """
        return self._act({"type": "scroll", "x": x, "y": y, "direction": direction})

    def type_text(self, text: str) -> Shown:
        """Types into what has the focus.

        Args:
            text: What is typed; a newline at its end submits.
        """
        return self._act({"type": "type", "content": text})

    def hotkey(self, keys: str) -> Shown:
        """Presses one to three keys together.

        Args:
            keys: Their names in small letters with spaces between, such as: ctrl c
        """
        return self._act({"type": "hotkey", "key": keys})

    def run_command(self, command: str) -> Shown:
        """Runs a command in the shell, where there is one; the picture shows what it printed.

        Args:
            command: A command for bash, which goes on from the last one.
        """
        return self._act({"type": "terminal", "command": command})

    def read_file(self, path: str) -> Shown:
        """Opens a file, where there are files; the picture shows it.

        Args:
            path: Its path.
        """
        return self._act({"type": "read_file", "path": path})

    def write_file(self, path: str, content: str) -> Shown:
        """Writes a whole file, where there are files.

        Args:
            path: Its path.
            content: All that it is to hold.
        """
        return self._act({"type": "write_file", "path": path, "content": content})

    def wait(self) -> Shown:
        """Does nothing for a while."""
        return self._act({"type": "wait"})

    def finish(self, answer: str = "") -> Shown:
        """Ends the task as done.

        Args:
            answer: What was asked for, if the task asks a question.
        """
        return self._act({"type": "finished", "content": answer})

    def _act(self, action: Fields) -> Shown:
        if self._over:
            raise ValueError("Episode over: nothing more can be done.")
        try:
            answer = self._client.step(as_written(action))
        except (ServerLost, ServerRefused) as error:
            if isinstance(error, ServerRefused) and error.code == INVALID:
                raise ValueError(broken(error.message)) from error  # TRL shows the model the error, and continues
            self._over, self._reward = True, None  # TRL catches this error and still calls `get_reward`
            raise
        failure = answer.metadata.get("failure")
        self._over = answer.done
        if failure not in (None, "action"):
            self._reward = None
            raise RuntimeError(broken(f"{failure}: {answer.metadata.get('reason')}"))
        if answer.reward is not None:
            self._reward = answer.reward
        reason = str(answer.metadata.get("action_error") or answer.metadata.get("reason") or "")
        return self._turn_of(answer, reason or ("Episode over." if answer.done else "Done."))

    def _turn_of(self, answer: StepResponse, text: str) -> Shown:
        picture = upright_rgb_of(base64.b64decode(answer.observation["screenshot"]))
        return [{"type": "image", "image": picture}, {"type": "text", "text": broken(text)}]
