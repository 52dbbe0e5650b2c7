"""Serve the tasks of a CUBE package (cube-standard 0.1.0rc10), in process, in a Python 3.12 that has both.

The fields of `reset` are `cube` (the package's name, such as `miniwob-cube`), `task`, `seed`, and optionally
`benchmark` (fields of its BenchmarkConfig) and `tool` (its ToolConfig as CUBE serialises it, with `_type`; by default
the benchmark's own, or else BrowserGym's functions for points and keys). The benchmark is started once for a process,
on a free port if it takes one. An action is translated to the task's own action set: BrowserGym's functions, or those
of CUBE's Playwright tool. At `finished` and `call_user` the task is evaluated, by CUBE's `final_step` if it has that.
"""

# pyright: reportMissingImports=false
import io
import os
import socket
from collections.abc import Callable
from typing import Any

from cube.core import Action, ImageContent, TextContent
from cube.introspect import find_benchmark_class
from flywheel_browser import Calls, calls_of, chord, place, use_browser
from flywheel_worker import Refused, serve, shown

FIELDS = ("cube", "task", "seed", "benchmark", "tool")
TOOL = {
    "_type": "cube_browser_tool.bgym_tool.BgymToolConfig",
    "action_subsets": ["coord", "nav"],
    "use_html": False,
    "use_axtree": False,
}
FINAL = "final_step"
FAILED = "Failed: "
"""Prefix of BrowserGym's message about an action that had no effect."""


class Cube:
    """One task after the other, of a benchmark that stays."""

    def __init__(self) -> None:
        self._key: Any = None
        self._benchmark: Any = None
        self._task: Any = None
        self._instruction = ""
        self._picture = b""
        self._size = (0, 0)
        use_browser(os.environ.get("FLYWHEEL_BROWSER"))

    def reset(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Begins a task; raises ValueError for an unknown package, field or task."""
        self.close()
        if unknown := sorted(set(fields) - set(FIELDS)):
            raise ValueError(f"`reset` has no {unknown[0]!r}: it has {', '.join(FIELDS)}")
        key = {name: one for name, one in fields.items() if name not in ("task", "seed")}
        if key != self._key:
            self._leave()
            self._benchmark, self._key = _begun(fields["cube"], fields.get("benchmark", {}), fields.get("tool")), key
        configs = {one.task_id: one for one in self._benchmark.config.get_task_configs()}
        if fields["task"] not in configs:
            raise ValueError(f"{fields['cube']} has no task {fields['task']!r}: it has {', '.join(configs)}"[:400])
        config = configs[fields["task"]].model_copy(update={"seed": fields["seed"]})
        self._task = self._benchmark.spawn(config)
        seen, _ = self._task.reset()
        texts = [one.data for one in seen.contents if isinstance(one, TextContent) and not one.name]
        self._instruction = "\n".join(texts)
        return self._answer(seen)

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Performs one action as one of CUBE's steps."""
        has = {one.name for one in self._task.action_set}
        calls = self._calls(action, has)
        if not calls:
            return shown(self._picture, self._instruction, float(self._task.evaluate()[0]), True)
        done = self._task.step([Action(name=name, arguments=given) for name, given in calls])
        texts = [one.data for one in done.obs.contents if isinstance(one, TextContent)]
        failed = done.error.exception_str if done.error else next((one for one in texts if one.startswith(FAILED)), "")
        truncated = bool(done.truncated and not done.done)
        over = bool(done.done or done.truncated)
        return self._answer(done.obs, float(done.reward), over, truncated=truncated, action_error=failed)

    def close(self) -> None:
        """Ends the task; its benchmark stays for the next one."""
        task, self._task = self._task, None
        if task is not None:
            task.close()

    def _leave(self) -> None:
        benchmark, self._benchmark, self._key = self._benchmark, None, None
        if benchmark is not None:
            benchmark.close()

    def _calls(self, action: dict[str, Any], has: set[str]) -> Calls:
        kind = action["type"]
        if kind in ("finished", "call_user"):
            return [(FINAL, {})] if FINAL in has else []
        if "browser_mouse_click_xy" in has:
            if kind not in _PLAYWRIGHT:
                raise Refused(f"CUBE's Playwright tool cannot perform {kind}")
            calls = [_PLAYWRIGHT[kind](action, *self._size)]
        else:
            calls = calls_of(action, *self._size)
        if missing := [name for name, _ in calls if name not in has]:
            raise Refused(f"the task has no {missing[0]}, which {kind} would be: it has {', '.join(sorted(has))}"[:400])
        return calls

    def _answer(self, seen: Any, *what: Any, **metadata: Any) -> dict[str, Any]:
        """The answer with the last picture of an observation, or the previous one if it has none."""
        pictures = [one.data for one in seen.contents if isinstance(one, ImageContent)]
        if pictures:
            stream = io.BytesIO()
            last = pictures[-1] if pictures[-1].mode in _PNG_MODES else pictures[-1].convert("RGB")
            last.save(stream, "png")  # transparent pixels are laid on white later, where every picture enters
            self._picture, self._size = stream.getvalue(), pictures[-1].size
        return shown(self._picture, self._instruction, *what, **metadata)


_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")

Call = tuple[str, dict[str, Any]]


def _clicked(action: dict[str, Any], width: int, height: int) -> Call:
    return "browser_mouse_click_xy", {
        name: int(one) for name, one in place(action["x"], action["y"], width, height).items()
    }


_PLAYWRIGHT: dict[str, Callable[[dict[str, Any], int, int], Call]] = {
    "click": _clicked,
    "type": lambda action, *_: ("browser_type", {"selector": ":focus", "text": action["content"]}),
    "hotkey": lambda action, *_: ("browser_press_key", {"key": chord(action["key"])}),
    "press_enter": lambda *_: ("browser_press_key", {"key": "Enter"}),
    "navigate_back": lambda *_: ("browser_back", {}),
    "wait": lambda action, *_: ("browser_wait", {"seconds": action.get("seconds", 1)}),
}


def _begun(name: str, fields: dict[str, Any], tool: dict[str, Any] | None) -> Any:
    """Sets up a package's benchmark; raises ValueError for an unknown name or field."""
    kind, problem = find_benchmark_class(name)
    if kind is None:
        raise ValueError(problem)
    if unknown := sorted(set(fields) - set(kind.model_fields)):
        raise ValueError(f"`reset.benchmark` has no {unknown[0]!r}: it has {', '.join(kind.model_fields)}"[:400])
    free = {"port": _free_port()} if "port" in kind.model_fields else {}
    config = kind.model_validate({**free, **fields, **({"tool_config": tool} if tool is not None else {})})
    if config.tool_config is None:
        config = kind.model_validate({**free, **fields, "tool_config": TOOL})
    return config.make()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    serve(Cube)
