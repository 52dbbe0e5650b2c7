"""CUBE's worker over what it uses of CUBE, for a Python without it: a benchmark of one task, with the protocol's own
names and shapes (cube-standard 0.1.0rc10)."""

import sys
import types
from types import SimpleNamespace
from typing import Any

from flywheel_worker import serve  # pyright: ignore[reportMissingImports]
from PIL import Image


class Content(SimpleNamespace):
    name: str | None = None


class ImageContent(Content): ...


class TextContent(Content): ...


class Config(SimpleNamespace):
    """A BenchmarkConfig with its tasks."""

    model_fields = ("port", "tool_config")

    @classmethod
    def model_validate(cls, fields: dict[str, Any]) -> "Config":
        return cls(**{"tool_config": None, **fields})

    def get_task_configs(self) -> list[Any]:
        one = SimpleNamespace(task_id="lamp", seed=None)
        one.model_copy = lambda update: SimpleNamespace(**{**vars(one), **update})
        return [one]

    def make(self) -> Any:
        return SimpleNamespace(config=self, spawn=lambda config: Task(self, config.seed), close=lambda: None)


class Task:
    """A lamp that a click lights; keys say whether they are there."""

    def __init__(self, config: Config, seed: int) -> None:
        self.config, self.seed, self.lit = config, seed, False
        names = ["mouse_click", "keyboard_press", "noop"]
        if config.tool_config.get("stops"):
            names.append("final_step")
        self.action_set = [SimpleNamespace(name=name) for name in names]

    def seen(self, *texts: TextContent) -> SimpleNamespace:
        picture = ImageContent(data=Image.new("RGB", (40, 30), "white" if self.lit else "black"), name="screenshot")
        return SimpleNamespace(contents=[*texts, TextContent(data="<p>", name="html"), picture])

    def reset(self) -> tuple[SimpleNamespace, dict[str, Any]]:
        said = f"Light lamp {self.seed} at a port of its own: {self.config.port > 0}."
        return self.seen(TextContent(data=said)), {}

    def step(self, actions: list[Any]) -> SimpleNamespace:
        result, failed = TextContent(data="Success"), None
        for action in actions:
            if action.name == "mouse_click":
                assert action.arguments == {"x": 20.0, "y": 15.0}
                self.lit = True
            if action.name == "keyboard_press" and action.arguments["key"] == "Control+c":
                result = TextContent(data="Failed: no clipboard")
            if action.name == "keyboard_press" and action.arguments["key"] == "Escape":
                failed = SimpleNamespace(exception_str="it has no escape")
        done = actions[-1].name == "final_step"
        reward = float(self.lit) if done else 0.0
        return SimpleNamespace(obs=self.seen(result), reward=reward, done=done, truncated=False, error=failed)

    def evaluate(self) -> tuple[float, dict[str, Any]]:
        return float(self.lit), {}

    def close(self) -> None: ...


def find(name: str) -> tuple[Any, str]:
    return (Config, "") if name == "lamps-cube" else (None, f"Package '{name}' has no registered entry point.")


core, introspect = types.ModuleType("cube.core"), types.ModuleType("cube.introspect")
core.__dict__.update(Action=SimpleNamespace, ImageContent=ImageContent, TextContent=TextContent)
introspect.__dict__["find_benchmark_class"] = find
sys.modules |= {"cube": types.ModuleType("cube"), "cube.core": core, "cube.introspect": introspect}

if __name__ == "__main__":
    import cube_worker  # pyright: ignore[reportMissingImports]

    serve(cube_worker.Cube)
