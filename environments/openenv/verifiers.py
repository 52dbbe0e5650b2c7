"""Define a taskset and an environment for verifiers (prime-rl): a model plays a served sandbox, over the wire's client.

A turn shows the screen as a picture, with the instruction or the result of the last action; the reply is an action of
this project as JSON. After an outage of the sandbox, the episode fails without a reward, and verifiers retries it.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]

from common.text import broken
from environments.openenv.client import INVALID, ServerRefused, StepResponse, WireClient, as_written
from schemas.action import TYPES

FIELDS = "; ".join(
    f"{name}: {', '.join(field for field in kind.model_fields if field != 'type')}" for name, kind in TYPES.items()
)
SYSTEM = f"""You act on a screen. Reply with one action as JSON and nothing else, such as
{{"type": "click", "x": 0.5, "y": 0.25}}. Points are fractions of the screen from 0 to 1. Types and their fields:
{FIELDS}. End with finished."""


class GuiData(vf.TaskData):
    """The fields of `reset`."""

    url: str
    token_variable: str
    reset: dict[str, Any]


class GuiConfig(vf.TasksetConfig):
    """`--env.taskset.*`: the server, the variable that holds its token, and the `reset` fields of each task."""

    url: str = "http://127.0.0.1:8000"
    token_variable: str = "FLYWHEEL_SANDBOXES_TOKEN"
    resets: list[dict[str, Any]] = [{}]  # noqa: RUF012  (pydantic copies it)


class VerifiersGuiTask(vf.Task[GuiData]):
    """A task for one episode."""


class GuiTaskset(vf.Taskset[VerifiersGuiTask, GuiConfig]):
    """The tasks that `resets` names."""

    def load(self) -> Iterator[VerifiersGuiTask]:
        """Yields a task for each entry."""
        of = {"url": self.config.url, "token_variable": self.config.token_variable, "system_prompt": SYSTEM}
        for reset in self.config.resets:
            name = f"{reset.get('task_id', 'task')}#{reset.get('seed', '')}"
            yield VerifiersGuiTask(GuiData(name=name, reset=reset, **of), self.config.task)


class GuiEnvConfig(vf.EnvConfig):
    """The player's settings: only chat turns, since only actions are performed."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class VerifiersGuiEnv(vf.Env[GuiEnvConfig]):
    """Shows the screen and performs the reply in turn, until the episode is over."""

    async def run(self, task: Any, agents: Any) -> None:
        """Runs one episode; raises Refused for an unknown task or seed, Lost, and RuntimeError for an outage."""
        client = WireClient(task.data.url, os.environ.get(task.data.token_variable))
        try:
            await client.open()
            answer = await client.reset(task.data.reset)
            text = str(answer.observation.get("instruction", ""))
            async with agents.player.interaction(task) as interaction:
                while not answer.done and not (segment := await interaction.turn(_turn(answer, text))).terminated:
                    answer, text = await _performed(client, answer, segment.last_reply)
            if interaction.trace.ok:
                interaction.trace.record_reward("flywheel", answer.reward or 0.0)
        finally:
            await client.close()


def _turn(answer: StepResponse, text: str) -> list[dict[str, Any]]:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{answer.observation['screenshot']}"}}
    return [{"role": "user", "content": [picture, {"type": "text", "text": broken(text)}]}]


async def _performed(client: WireClient, before: StepResponse, reply: str) -> tuple[StepResponse, str]:
    """Performs the action of a reply; returns the answer and the text for the next turn. A reply that is no action has
    no effect."""
    try:
        action = json.loads(reply.strip().removeprefix("```json").strip("`\n "))
        answer = await client.step(as_written(action) if isinstance(action, dict) else {})
    except ValueError:
        return before, "That is not a JSON action."
    except ServerRefused as error:
        if error.code != INVALID:
            raise
        return before, error.message
    about = answer.metadata
    if about.get("failure") not in (None, "action"):
        raise RuntimeError(f"{about['failure']}: {about.get('reason')}")
    return answer, str(about.get("action_error") or "Done. " + str(answer.observation.get("instruction", "")))
