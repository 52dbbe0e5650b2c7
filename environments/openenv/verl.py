"""Define a tool for verl's agent loop: one function that acts in a served sandbox, and its reward.

verl makes, executes and releases a tool for each call, may make several calls of a turn at once, and sends everything
in a trajectory's `extra_fields` to other processes. So this module keeps the episodes, separately from trajectories.
The first call of a trajectory begins its episode with the `create_kwargs` of the dataset's `tools_kwargs`. Calls act in
turn, and the episode ends by itself or with the trajectory. verl is imported when the tool is made.
"""

import asyncio
import base64
import logging
import math
import weakref
from typing import Any

from PIL import Image

from common.picture import upright_rgb_of
from common.text import broken
from environments.openenv.client import INVALID, Fields, ServerLost, ServerRefused, StepResponse, WireClient, as_written
from schemas.action import TYPES

NAME = "gui"
POINTS = ("x", "y", "to_x", "to_y")
Called = tuple[str, Image.Image | None, float | None, dict[str, Any]]
"""Result of a call: the text, the screen, the reward (None without one), and facts about the episode."""
logger = logging.getLogger(__name__)


def schema() -> dict[str, Any]:
    """Returns the function's schema in OpenAI's form: an action of this project, with the fields of its type."""
    named = {name for kind in TYPES.values() for name in kind.model_fields} - {"type"}
    point = {"type": "number", "description": "A fraction of the screen."}
    kinds = {**dict.fromkeys(POINTS, point), "seconds": {"type": "number"}, "arguments": {"type": "object"}}
    fields = {name: kinds.get(name, {"type": "string"}) for name in sorted(named)}
    about = "Acts on the screen and shows it; begin with wait, which shows the first one and what is asked."
    properties = {"type": {"type": "string", "enum": list(TYPES)}, **fields}
    parameters = {"type": "object", "properties": properties, "required": ["type"]}
    return {"type": "function", "function": {"name": NAME, "description": about, "parameters": parameters}}


def verl_tool(config: dict[str, Any], tool_schema: Any = None) -> Any:
    """Makes the tool that verl's tools config names: `class_name: environments.openenv.verl.verl_tool`.

    Args:
        config: `url` of the server, and `token` if it requires one.
        tool_schema: schema to use instead of this module's, if given.
    """
    from verl.tools.base_tool import BaseTool  # pyright: ignore[reportMissingImports]
    from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse  # pyright: ignore[reportMissingImports]

    episodes: weakref.WeakKeyDictionary[Any, Episode] = weakref.WeakKeyDictionary()

    class GuiTool(BaseTool):
        async def execute(
            self, instance_id: str, parameters: dict[str, Any], **given: Any
        ) -> tuple[Any, float | None, dict[str, Any]]:
            trajectory = given["agent_data"]
            if (episode := episodes.get(trajectory)) is None:
                asked = trajectory.tools_kwargs.get(self.name, {}).get("create_kwargs", {})
                episode = episodes[trajectory] = Episode(config["url"], config.get("token"), asked)
                weakref.finalize(trajectory, episode.drop, asyncio.get_running_loop())
            text, picture, reward, about = await episode.act(parameters)
            return ToolResponse(text=text, **({"image": [picture]} if picture else {})), reward, about

    return GuiTool(config, tool_schema or OpenAIFunctionToolSchema.model_validate(schema()))


def compute_score(
    data_source: Any,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    outage: float | None = None,
    **_: Any,
) -> float:
    """Sums a trajectory's rewards, as verl's `custom_reward_function`; 0 for a trajectory without actions.

    Args:
        data_source: not used, like the next two.
        solution_str: the model's text.
        ground_truth: value of the dataset.
        extra_info: has the `tool_rewards` of the trajectory.
        outage: reward of an outage; if not given, an outage raises, and verl's trainer makes no sample of the
            trajectory.

    Raises:
        RuntimeError: the sandbox was unreachable, so the trajectory has no reward.
    """
    rewards = (extra_info or {}).get("tool_rewards") or []
    if not any(map(math.isnan, rewards)):
        return float(sum(rewards))
    if outage is None:
        raise RuntimeError("the sandbox was unreachable, so the trajectory has no reward and is not a sample")
    return outage


class Episode:
    """The episode of one trajectory.

    If the begin fails, the next call retries it. An episode that is lost later stays lost, since another sandbox would
    have another episode.

    Args:
        url: the server's base URL.
        token: token that the server requires, if any.
        asked: the fields of `reset`: `task_id` and `seed` are used.
    """

    def __init__(self, url: str, token: str | None, asked: Fields) -> None:
        self._url, self._token = url, token
        self._reset = {name: asked[name] for name in ("task_id", "seed") if asked.get(name) is not None}
        self._turn = asyncio.Lock()
        self._client: WireClient | None = None
        self._instruction, self._earned, self._over, self._lost = "", 0.0, False, ""

    async def act(self, action: Any) -> Called:
        """Performs an action after all earlier calls' actions; the reward of an outage is NaN instead of 0."""
        async with self._turn:
            try:
                text, picture, earned, about = await self._act(as_written(action))
                return broken(text), picture, earned, about
            except (ServerLost, ServerRefused) as error:
                logger.warning("no reward for a trajectory of %s: %s", self._reset, error)
                away, about = broken(f"The sandbox is away: {error}"), {"failure": "sandbox", "reason": str(error)}
                return away, None, math.nan, about

    async def _act(self, action: Any) -> Called:
        if self._lost:
            raise ServerLost(self._lost)
        if self._over:
            return "Episode over: nothing more can be done.", None, None, {}
        client = self._client = self._client or await self._begun()
        try:
            answer = await client.step(action)
            await self._take(client, answer)
        except (ServerRefused, ServerLost) as error:
            if isinstance(error, ServerRefused) and error.code == INVALID:
                return error.message, None, None, {}
            self._lost = str(error)
            raise
        earned = None if answer.reward is None else answer.reward - self._earned  # so that the calls' sum is the reward
        self._earned += earned or 0.0
        text = str(answer.metadata.get("action_error") or answer.metadata.get("reason") or "")
        picture = upright_rgb_of(base64.b64decode(answer.observation["screenshot"]))
        return text or ("Episode over." if answer.done else self._instruction), picture, earned, dict(answer.metadata)

    async def _begun(self) -> WireClient:
        client = WireClient(self._url, self._token)
        try:
            await client.open()
            self._instruction = str((await client.reset(self._reset)).observation.get("instruction", ""))
        except BaseException:
            client.drop()
            raise
        return client

    async def _take(self, client: WireClient, answer: StepResponse) -> None:
        """Returns the sandbox if the episode is over; raises Lost if an outage ended it."""
        if not answer.done:
            return
        self._over = True
        await client.close()
        if (failure := answer.metadata.get("failure")) not in (None, "action"):
            raise ServerLost(f"{failure}: {answer.metadata.get('reason')}")

    def drop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Returns the sandbox of a trajectory that has ended."""
        if self._client is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._client.drop)
