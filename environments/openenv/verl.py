"""A tool for verl's agent loop: one function that acts in a served sandbox, over the wire's client.

verl makes, executes and releases a tool for each call, so the session is kept with the trajectory (`agent_data`): it is
begun by the first call, with the `create_kwargs` of the dataset's `tools_kwargs`, and ends with the episode or with the
trajectory. verl is imported where the tool is made.
"""

import asyncio
import base64
import io
import weakref
from typing import Any

from PIL import Image

from environments.openenv.client import INVALID, Refused, WireClient
from schemas.action import TYPES

NAME = "gui"
PLACE = "flywheel_session"
"""Of a trajectory's session, in its `extra_fields`."""
POINTS = ("x", "y", "to_x", "to_y")


def schema() -> dict[str, Any]:
    """The function as OpenAI writes it: an action of ours, whose fields are those of its type."""
    named = {name for kind in TYPES.values() for name in kind.model_fields} - {"type"}
    point = {"type": "number", "description": "A fraction of the screen."}
    fields = {name: point if name in POINTS else {"type": "string"} for name in sorted(named)}
    about = "Acts on the screen and shows it; begin with wait, which shows the first one and what is asked."
    properties = {"type": {"type": "string", "enum": list(TYPES)}, **fields}
    parameters = {"type": "object", "properties": properties, "required": ["type"]}
    return {"type": "function", "function": {"name": NAME, "description": about, "parameters": parameters}}


def verl_tool(config: dict[str, Any], tool_schema: Any = None) -> Any:
    """The tool, as verl's tools config names it: `class_name: environments.openenv.verl.verl_tool`.

    Args:
        config: `url` of the server, and `token` if it asks for one.
        tool_schema: another schema than this module's, if there is one.
    """
    from verl.tools.base_tool import BaseTool  # pyright: ignore[reportMissingImports]
    from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse  # pyright: ignore[reportMissingImports]

    class GuiTool(BaseTool):
        async def execute(
            self, instance_id: str, parameters: dict[str, Any], **given: Any
        ) -> tuple[Any, float, dict[str, Any]]:
            trajectory = given["agent_data"]
            session = trajectory.extra_fields.get(PLACE)
            if session is None:
                session = trajectory.extra_fields[PLACE] = Session(config["url"], config.get("token"))
                weakref.finalize(trajectory, session.drop, asyncio.get_running_loop())
                asked = trajectory.tools_kwargs.get(self.name, {}).get("create_kwargs", {})
                await session.begin({name: asked[name] for name in ("task_id", "seed") if asked.get(name) is not None})
            text, picture, reward, about = await session.act(parameters)
            return ToolResponse(text=text, **({"image": [picture]} if picture else {})), reward, about

    return GuiTool(config, tool_schema or OpenAIFunctionToolSchema.model_validate(schema()))


class Session:
    """An episode of one trajectory.

    Args:
        url: the server's base URL.
        token: what it asks for, if anything.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._client = WireClient(url, token)
        self._instruction, self._over = "", False

    async def begin(self, fields: dict[str, Any]) -> None:
        """Starts it; raises Refused for a task or a seed that there is not, and Lost if nobody answers."""
        await self._client.open()
        self._instruction = str((await self._client.reset(fields)).observation.get("instruction", ""))

    async def act(self, action: dict[str, Any]) -> tuple[str, Image.Image | None, float, dict[str, Any]]:
        """What is said, the screen, the reward of this step, and the episode's facts; raises Lost, and RuntimeError for
        an outage."""
        if self._over:
            return "Episode over: nothing more can be done.", None, 0.0, {}
        try:
            answer = await self._client.step(action)
        except Refused as error:
            if error.code != INVALID:
                raise
            return error.message, None, 0.0, {}
        failure = answer.metadata.get("failure")
        if answer.done:
            self._over = True
            await self._client.close()
        if failure not in (None, "action"):
            raise RuntimeError(f"{failure}: {answer.metadata.get('reason')}")
        output = str(answer.metadata.get("action_error") or answer.metadata.get("reason") or "")
        picture = Image.open(io.BytesIO(base64.b64decode(answer.observation["screenshot"]))).convert("RGB")
        output = output or ("Episode over." if answer.done else self._instruction)
        return output, picture, answer.reward or 0.0, dict(answer.metadata)

    def drop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cuts the connection of a trajectory that is no more."""
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._client.drop)
