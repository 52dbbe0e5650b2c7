"""An `environment_factory` for TRL's GRPOTrainer: its tools act in a served sandbox, over the wire's client.

TRL makes objects without arguments, resets each with a row of the dataset, offers its public methods to the model as
tools, and asks for no end. A tool's answer is a picture and a text. TRL is not needed to import this.
"""

import base64
import io
from typing import Any, Literal

from PIL import Image

from environments.openenv.blocking import BlockingClient
from environments.openenv.client import INVALID, Answer, Fields, Lost, Refused

Shown = list[dict[str, Any]]


def trl_environment(url: str, token: str | None = None, wait_s: float = 60.0) -> type["GuiTools"]:
    """The class to hand to `environment_factory`.

    Args:
        url: the server's base URL.
        token: what it asks for, if anything.
        wait_s: how long an answer is waited for.
    """

    class Served(GuiTools):
        def __init__(self) -> None:
            super().__init__(BlockingClient(url, token, wait_s))

    return Served


class GuiTools:
    """One session; of a row of the dataset `task_id` and `seed` are read."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._reward: float | None = 0.0
        self._over = False

    def reset(self, **row: Any) -> Shown:
        """Begins an episode; raises Refused for a task or a seed that there is not, and Lost if nobody answers."""
        fields = {key: row[key] for key in ("task_id", "seed") if row.get(key) is not None}
        self._reward, self._over = 0.0, False
        answer = self._client.reset(**fields)
        return self._shown(answer, str(answer.observation.get("instruction", "")))

    def get_reward(self) -> float | None:
        """What the episode has come to; 0 while it is not over, None where an outage ended it, which TRL leaves out."""
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
        """Says that the task is done.

        Args:
            answer: What was asked for, if the task asks a question.
        """
        return self._act({"type": "finished", "content": answer})

    def _act(self, action: Fields) -> Shown:
        if self._over:
            raise ValueError("Episode over: nothing more can be done.")
        try:
            answer = self._client.step(action)
        except (Lost, Refused) as error:
            if isinstance(error, Refused) and error.code == INVALID:
                raise ValueError(error.message) from error  # TRL tells the model, and goes on
            self._over, self._reward = True, None  # TRL catches this, and asks for the reward all the same
            raise
        failure = answer.metadata.get("failure")
        self._over = answer.done
        if failure not in (None, "action"):
            self._reward = None
            raise RuntimeError(f"{failure}: {answer.metadata.get('reason')}")
        if answer.reward is not None:
            self._reward = answer.reward
        reason = str(answer.metadata.get("action_error") or answer.metadata.get("reason") or "")
        return self._shown(answer, reason or ("Episode over." if answer.done else "Done."))

    def _shown(self, answer: Answer, text: str) -> Shown:
        picture = Image.open(io.BytesIO(base64.b64decode(answer.observation["screenshot"])))
        return [{"type": "image", "image": picture.convert("RGB")}, {"type": "text", "text": text}]
