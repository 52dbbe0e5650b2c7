"""Serve gymnasium environments with a screen, in a Python that has them.

The fields of `reset` are `env` (`CartPole-v1`, or `package:Name-v0`), `seed`, `keys` (the number in a Discrete action
space for each key), and optionally `idle` (the action of `wait`), `repeat` (steps of one action) and `options` (further
arguments of `gymnasium.make`). The screen is the environment's `rgb_array`, or its observation if that is a picture.
Rewards are each step's: `rewards = "summed"` makes a return of them.
"""

# pyright: reportMissingImports=false
import importlib
from typing import Any

import gymnasium
from flywheel_worker import Refused, serve, shown
from gymnasium.envs.registration import load_env_creator

ARROWS = ("left", "right", "up", "down")
FIELDS = ("env", "seed", "keys", "idle", "repeat", "options")


class Gymnasium:
    """One environment after the other."""

    def __init__(self) -> None:
        self._env: Any = None
        self._keys: dict[str, int] = {}
        self._idle: int | None = None
        self._repeat = 1
        self._seen: Any = None

    def reset(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Makes the environment and begins an episode; raises ValueError for fields that do not fit it."""
        self.close()
        if unknown := sorted(set(fields) - set(FIELDS)):
            raise ValueError(f"`reset` has no {unknown[0]!r}: it has {', '.join(FIELDS)}")
        self._env = _made(fields["env"], fields.get("options", {}))
        self._keys = {f"arrow{key}" if key in ARROWS else key: one for key, one in fields.get("keys", {}).items()}
        self._idle, self._repeat = fields.get("idle"), fields.get("repeat", 1)
        space = self._env.action_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise ValueError(f"its actions are {space}, and keys reach Discrete ones alone")
        named = [*self._keys.values(), *([] if self._idle is None else [self._idle])]
        if not self._keys or not all(space.contains(one) for one in named):
            raise ValueError(f"`keys` and `idle` name actions of {space}, and are {named}")
        self._seen, _ = self._env.reset(seed=fields["seed"])
        return shown(self._picture())

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Performs the key's action, `repeat` times or until the episode ends."""
        if action["type"] in ("finished", "call_user"):
            return shown(self._picture())
        number, reward, terminated, truncated = self._numbered(action), 0.0, False, False
        for _ in range(self._repeat):
            self._seen, gained, terminated, truncated, _ = self._env.step(number)
            reward += float(gained)
            if terminated or truncated:
                break
        done, limit = terminated or truncated, truncated and not terminated
        return shown(self._picture(), "", reward, done, truncated=bool(limit))

    def close(self) -> None:
        """Ends the environment."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _numbered(self, action: dict[str, Any]) -> int:
        if action["type"] == "wait" and self._idle is not None:
            return self._idle
        if action["type"] != "hotkey":
            raise Refused(f"this environment cannot perform {action['type']}: it takes keys")
        if action["key"] not in self._keys:
            raise Refused(f"no action is {action['key']!r}: there are {', '.join(self._keys)}")
        return self._keys[action["key"]]

    def _picture(self) -> Any:
        drawn = self._env.render() if self._env.render_mode == "rgb_array" else self._seen
        return drawn[..., :3] if getattr(drawn, "ndim", 0) == 3 else drawn


def _made(name: str, options: dict[str, Any]) -> Any:
    """The environment, made to draw if it can."""
    module, colon, inner = name.rpartition(":")
    if colon:
        importlib.import_module(module)
    entry = gymnasium.spec(inner).entry_point
    creator = load_env_creator(entry) if isinstance(entry, str) else entry
    modes = getattr(creator, "metadata", {}).get("render_modes") or ()
    return gymnasium.make(inner, **{**({"render_mode": "rgb_array"} if "rgb_array" in modes else {}), **options})


if __name__ == "__main__":
    serve(Gymnasium)
