"""Find the actions of scripted solutions on a phone, in MobileGym's Python: `scout.py PLANS RESULT SEED`.

A plan is a list of steps that name elements by their visible text, `aria-label` or `data-trigger`; `{name}` is a
parameter of the task. The scout plays a plan on the phone and writes the actions, with the points that it found, so
that all sides of the benchmark perform the same actions. Steps: `tap NAME` (scrolls down until NAME is on the screen),
`row NAME` (the right end of its line), `long NAME`, `at X Y` (pixels), `type TEXT`, `open APP`, `all` (selects a
field's text), `back`, `enter`, and `sheet`: writes the answers that the task's own judge expects on the answer sheet
and submits it.
"""

# pyright: reportMissingImports=false
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from mobilegym_worker import HEIGHT, WIDTH, MobileGym

FIND = """((name) => {
  for (const one of document.querySelectorAll('*')) {
    const text = [...one.childNodes].filter((part) => part.nodeType === 3).map((part) => part.data).join('').trim();
    const { ariaLabel, placeholder, dataset } = one;
    if (![text, ariaLabel, placeholder, dataset.trigger].includes(name)) continue;
    const box = one.getBoundingClientRect();
    const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
    const hit = x > 0 && y > 0 && x < innerWidth && y < innerHeight && document.elementFromPoint(x, y);
    if (hit && (one.contains(hit) || hit.contains(one))) return [x, y];
  }
  return null;
})"""
FIELD = """(() => {
  const form = document.querySelector('[data-scroll-container=sheet-form]');
  const box = [...form.querySelectorAll('input, textarea')].find((one) => !one.value)?.getBoundingClientRect();
  return box ? [box.left + box.width / 2, box.top + box.height / 2] : null;
})()"""
SHEET, ADD, SUBMIT, WRONG = "答题卡", "➕ 添加一项", "提交答案", "0"
SCROLLS, RIGHT = 6, 0.88
UNASKED = {"notes": ["open clock", "row 05:00"], "": ["open notes", "tap 待办", "tap 标记完成"]}
"""Steps of a change that no task asks for: an alarm, or outside Notes a to-do."""


OTHERS = {
    "type": {"type": "type", "content": "{}"}, "open": {"type": "open_app", "app_name": "{}"},
    "all": {"type": "hotkey", "key": "ctrl a"}, "back": {"type": "press_back"}, "enter": {"type": "press_enter"},
}  # fmt: skip
"""Actions of the steps without a place."""


class Scout:
    """Plays plans on one phone, and keeps the actions."""

    def __init__(self, theirs: MobileGym) -> None:
        self._theirs, self.actions = theirs, list[dict[str, Any]]()
        self._run = theirs._phone._run

    def play(self, plan: list[str], answers: list[Any] | None = None) -> None:
        """Plays a plan; raises LookupError for a missing element."""
        params = {**self._theirs._task.params, **vars(self._theirs._task)}
        for step in plan:
            kind, _, name = step.partition(" ")
            name = name.format(**params) if "{" in name else name
            if kind in ("tap", "row", "long"):
                x, y = self._found(name)
                self._do("long_press" if kind == "long" else "click", RIGHT * WIDTH if kind == "row" else x, y)
            elif kind == "at":
                self._do("click", *map(float, name.split()))
            elif kind == "sheet":
                self._fill(self.expected() if answers is None else answers)
            else:
                self._send({key: value.format(name) for key, value in OTHERS[kind].items()})

    @property
    def fields(self) -> list[dict[str, Any]]:
        """Fields of the answer sheet."""
        return self._theirs._task._resolve_answer_fields()

    def expected(self) -> list[Any]:
        """Returns the answers that the task's judge expects."""
        from bench_env.task import JudgeInput

        last = asyncio.run(self._theirs._phone.get_observation())
        found = self._theirs._task.get_expected_response(JudgeInput(self._theirs._first, last))
        return list(found) if isinstance(found, list | tuple) else [found]

    def _fill(self, answers: list[Any]) -> None:
        self._send({"type": "open_app", "app_name": SHEET})
        for field, answer in zip(self.fields, answers, strict=False):
            for value in answer if field.get("repeatable") and isinstance(answer, list) else [answer]:
                if field["type"] == "choice" and not field.get("repeatable"):
                    self._do("click", *self._found(str(value)))
                    continue
                if field.get("repeatable"):
                    self._do("click", *self._found(ADD))
                if (at := self._run(FIELD)) is None:
                    raise LookupError("the sheet has no free field")
                self._do("click", *at)
                self._send({"type": "type", "content": str(value)})
                self._send({"type": "press_back"})  # hides the keyboard
        self._do("click", *self._found(SUBMIT))

    def _found(self, name: str) -> tuple[float, float]:
        for _ in range(SCROLLS):
            if (at := self._run(f"{FIND}({json.dumps(name)})")) is not None:
                return at[0], at[1]
            self._send({"type": "scroll", "direction": "down"})
        raise LookupError(f"no {name!r} on the screen")

    def _do(self, kind: str, x: float, y: float) -> None:
        self._send({"type": kind, "x": round(x / WIDTH, 4), "y": round(y / HEIGHT, 4)})

    def _send(self, action: dict[str, Any]) -> None:
        self.actions.append(action)
        self._theirs.step(action)


def _other(field: dict[str, Any], answer: Any) -> Any:
    """Returns a wrong answer for a field."""
    if field["type"] == "choice" and not field.get("repeatable"):
        return next(one for one in field["options"] if one != answer)
    return [WRONG] if isinstance(answer, list) else WRONG


def scouted(theirs: MobileGym, task: str, plan: list[str], seed: int, time: str) -> dict[str, Any]:
    """Returns the actions of the solution and of a wrong end, and the scores of both and of the untouched phone."""
    found, scores = dict[str, Any](), dict[str, float]()
    for end in ("solved", "wrong", "untouched"):
        theirs.reset({"task": task, "seed": seed, "eval_mode": "grounded", "time": time})
        scout = Scout(theirs)
        if end != "untouched":
            wrong = end == "wrong" and plan[-1] == "sheet"
            scout.play(plan[:-1] if wrong else plan)
            if wrong:
                scout.play(["sheet"], [_other(*pair) for pair in zip(scout.fields, scout.expected(), strict=True)])
            elif end == "wrong":
                scout.play(UNASKED["notes" if "notes" in theirs._task.apps else ""])
        answer = theirs.step({"type": "finished", "content": ""})
        found[end], scores[end] = scout.actions, answer["reward"]
    return {**found, "scores": scores, "instruction": answer["observation"]["instruction"]}


def main() -> None:
    """Scouts all plans, and writes the found actions by task."""
    plans, result, seed, time = (
        json.loads(Path(sys.argv[1]).read_text()),
        Path(sys.argv[2]),
        int(sys.argv[3]),
        sys.argv[4],
    )
    theirs, found = MobileGym(), dict[str, Any]()
    for task, plan in plans.items():
        try:
            found[task] = scouted(theirs, task, plan, seed, time)
        except Exception as error:
            found[task] = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(task, found[task].get("scores") or found[task]["error"], flush=True)
        result.write_text(json.dumps(found, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
