"""OpenEnv's own package, run by a Python that has it: a server of its classes, or its clients against ours.

`PYTHON openenv_peer.py serve PORT` and `PYTHON openenv_peer.py play URL EPISODES`; it knows nothing of this project.
"""

import asyncio
import base64
import io
import json
import sys
from typing import Any


def serve(port: int) -> None:
    """A button to click, as an OpenEnv environment."""
    import random

    import uvicorn
    from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
    from PIL import Image, ImageDraw

    class Press(Action):
        kind: str
        left: int = 0
        top: int = 0

    class Shown(Observation):
        image: str
        goal: str
        trouble: str = ""

    class Button(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._state = State()
            self._place = (0, 0)

        def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Shown:
            chance = random.Random(seed)
            self._state = State(episode_id=episode_id, step_count=0)
            self._place = (chance.randrange(150), chance.randrange(80))
            return self._shown()

        def step(self, action: Press, timeout_s: float | None = None, **_: Any) -> Shown:
            self._state.step_count += 1
            if action.kind == "crash":
                raise RuntimeError("the environment crashed")
            if action.kind != "press":
                return self._shown(trouble=f"nobody can {action.kind}")
            left, top = self._place
            hit = left <= action.left < left + 50 and top <= action.top < top + 20
            return self._shown(done=hit, reward=float(hit))

        @property
        def state(self) -> State:
            return self._state

        def _shown(self, **more: Any) -> Shown:
            image = Image.new("RGB", (200, 100), "white")
            left, top = self._place
            ImageDraw.Draw(image).rectangle((left, top, left + 49, top + 19), fill="blue")
            stream = io.BytesIO()
            image.save(stream, "png")
            return Shown(image=base64.b64encode(stream.getvalue()).decode(), goal="Press blue.", **more)

    app = create_fastapi_app(Button, Press, Shown, max_concurrent_envs=2)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


def play(url: str, episodes: int) -> None:
    """Plays `click-one` through both clients; prints what came of it as JSON."""
    from openenv.core import GenericEnvClient

    def click(observation: dict[str, Any]) -> dict[str, Any]:
        _, _, (left, top, right, bottom), _, _ = next(one for one in observation["elements"] if one[1] == "button")
        return {"type": "click", "x": (left + right) / 2, "y": (top + bottom) / 2}

    async def waiting() -> list[float]:
        rewards = []
        async with GenericEnvClient(base_url=url) as client:
            for seed in range(episodes):
                first = await client.reset(seed=seed, task_id="fake/click-one", elements=True)
                last = await client.step(click(first.observation))
                assert last.done and (await client.state())["step_count"] == 1
                rewards.append(last.reward)
        return rewards

    async def apart() -> list[float]:
        rewards = []
        for seed in range(episodes):
            async with GenericEnvClient(base_url=url) as client:  # as OpenEnv's examples write it
                first = await client.reset(seed=seed, task_id="fake/click-one", elements=True)
                rewards.append((await client.step(click(first.observation))).reward)
        return rewards

    def at_once() -> list[float]:
        rewards = []
        with GenericEnvClient(base_url=url).sync() as client:
            for seed in range(episodes):
                first = client.reset(seed=seed, task_id="fake/click-one", elements=True)
                rewards.append(client.step(click(first.observation)).reward)
            try:
                client.step({"type": "wait"})
            except RuntimeError as error:
                rewards.append(str(error))
        return rewards

    print(json.dumps({"async": asyncio.run(waiting()), "apart": asyncio.run(apart()), "sync": at_once()}))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        play(sys.argv[2], int(sys.argv[3]))
