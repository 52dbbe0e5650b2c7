"""Register `flywheel/Gui-v0` in gymnasium: a served sandbox as an environment, over the wire's client.

`gymnasium.make("environments.openenv.gym:flywheel/Gui-v0", url="http://127.0.0.1:8000", task_id="miniwob/click-test")`
registers and makes the environment. It needs gymnasium (the extra `gym`) and a server (`flywheel serve-sandboxes`).
"""

import base64
import json
import string
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from common.picture import upright_rgb_of
from environments.openenv.client import INVALID, ServerLost, ServerRefused, StepResponse
from environments.openenv.wire import BlockingClient
from schemas.action import TYPES

ID = "flywheel/Gui-v0"
TYPED = tuple(TYPES)
"""Types of actions, by their number in the action space."""
DIRECTIONS = ("up", "down", "left", "right")
MOST_TEXT = 4096
_CHARACTERS = frozenset(string.printable) | frozenset(map(chr, range(0xA0, 0x600))) | {"\ufffd"}
_FIELDS = ("content", "key", "app_name", "command")


class GymGuiEnv(gymnasium.Env[dict[str, Any], dict[str, Any]]):
    """One session on a server, as a gymnasium environment.

    An observation is the screenshot, (height, width, 3) of uint8, and the instruction. An action names its `type` by
    its number in `TYPED`; `point` and `to` are fractions of the screen in [0, 1], `path` names a file or a tool, and
    `text` is any other text, such as a tool's arguments as JSON. Fields that the type does not use are ignored.
    `terminated` means a verdict, or that the policy ended the episode. A step's reward is the change of the episode's
    reward, so that the sum over the steps is the episode's reward. `truncated` means a limit or a failure that the
    server reports; `info["failure"]` has the boundary of a failure. Mask outages, since they are no reward of 0. An
    action that the server refuses has no effect, and `info["action_error"]` has the reason.

    Args:
        url: the server's base URL.
        task_id: the task; `reset(options={"task_id": ...})` may name another.
        token: token that the server requires, if any.
        size: width and height of the screenshots, in pixels; other screenshots are scaled to it. If not given, it is
            read from a first episode.
        wait_s: limit of one answer, in seconds.
        render_mode: None or `rgb_array`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012  (gymnasium's name and kind)

    def __init__(
        self,
        url: str,
        task_id: str | None = None,
        token: str | None = None,
        size: tuple[int, int] | None = None,
        wait_s: float = 60.0,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = render_mode
        self._client = BlockingClient(url, token, wait_s)
        self._task_id = task_id
        if size is None:
            shown = self._client.reset(**self._named(task_id), seed=0).observation
            size = (int(shown["width"]), int(shown["height"]))
        self._size = size
        self.observation_space = spaces.Dict(
            {
                "screenshot": spaces.Box(0, 255, (size[1], size[0], 3), np.uint8),
                "instruction": spaces.Text(MOST_TEXT, min_length=0, charset=_CHARACTERS),
            }
        )
        self.action_space = spaces.Dict(
            {
                "type": spaces.Discrete(len(TYPED)),
                "point": spaces.Box(0.0, 1.0, (2,), np.float32),
                "to": spaces.Box(0.0, 1.0, (2,), np.float32),
                "direction": spaces.Discrete(len(DIRECTIONS)),
                "text": spaces.Text(MOST_TEXT, min_length=0, charset=_CHARACTERS),
                "path": spaces.Text(MOST_TEXT, min_length=0, charset=_CHARACTERS),
            }
        )
        self._seen: dict[str, Any] = {}
        self._earned = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode; equal seeds give equal episodes. Without a seed, a random one is drawn.

        Raises:
            Refused: the task or seed does not exist.
            Lost: the server does not answer.
        """
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(1_000_000)) if seed is None else seed
        answer = self._client.reset(**self._named((options or {}).get("task_id", self._task_id)), seed=drawn)
        self._earned = answer.reward or 0.0
        return self._observation(answer), answer.metadata

    def step(self, action: dict[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Performs an action; the class describes the ends of an episode."""
        try:
            answer = self._client.step(written(action))
        except ServerRefused as error:
            if error.code != INVALID:
                raise
            return self._copied(), 0.0, False, False, {"action_error": error.message}
        except ServerLost as error:
            return self._copied(), 0.0, False, True, {"failure": "sandbox", "reason": str(error)}
        about = answer.metadata
        failed = about.get("failure") not in (None, "action")
        truncated = answer.done and (failed or about.get("truncated") is True)
        standing = self._earned if answer.reward is None else answer.reward
        earned, self._earned = standing - self._earned, standing
        return self._observation(answer), earned, answer.done and not truncated, truncated, about

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The screenshot as an array, if the render mode is `rgb_array`."""
        return self._seen["screenshot"].copy() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Ends the session."""
        self._client.close()

    def _named(self, task_id: str | None) -> dict[str, Any]:
        return {} if task_id is None else {"task_id": task_id}

    def _observation(self, answer: StepResponse) -> dict[str, Any]:
        shown = upright_rgb_of(base64.b64decode(answer.observation["screenshot"]))
        if shown.size != self._size:
            shown = shown.resize(self._size)
        instruction = str(answer.observation.get("instruction", ""))[:MOST_TEXT]
        text = "".join(one if one in _CHARACTERS else "\ufffd" for one in instruction)
        self._seen = {"screenshot": np.array(shown), "instruction": text}
        return self._copied()

    def _copied(self) -> dict[str, Any]:
        return {**self._seen, "screenshot": self._seen["screenshot"].copy()}


def written(action: dict[str, Any]) -> dict[str, Any]:
    """Converts an action of the action space to the protocol's form."""
    kind = TYPED[int(action["type"])]
    values: dict[str, Any] = {"type": kind, "direction": DIRECTIONS[int(action["direction"])]}
    for names, point in ((("x", "y"), action["point"]), (("to_x", "to_y"), action["to"])):
        values |= {name: min(1.0, max(0.0, float(one))) for name, one in zip(names, point, strict=True)}
    text, path = str(action["text"]), str(action.get("path", ""))
    values |= {**dict.fromkeys(_FIELDS, text), "path": path, "name": path, "arguments": _object(text)}
    return {name: values[name] for name in TYPES[kind].model_fields if name in values}


def _object(text: str) -> Any:
    """Returns the JSON of a text, or the text itself, which the server refuses."""
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text


if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point=f"{__name__}:GymGuiEnv")
