"""Set a task up, and judge it."""

from typing import Any


class Controller:
    """Sets tasks up."""

    @staticmethod
    async def setup(env: Any, task: Any, eval_mode: str = "grounded") -> tuple[Any, dict[str, Any]]:
        """Returns the first observation and the parameters; an answer sheet is laid out where it is asked for."""
        first = await task.setup(env)
        if eval_mode == "grounded" and task.answer_fields:
            await env.set_state({"apps": {"answer_sheet": {"fields": task.answer_fields, "submitted": False}}})
            task.note = " Answer on the sheet."
        return first, {"room": task.room}


class Evaluator:
    """Judges tasks."""

    def __init__(self, eval_mode: str = "grounded") -> None:
        self._grounded = eval_mode == "grounded"

    async def evaluate(self, task: Any, init_obs: Any, last_obs: Any, exec_result: Any, episode: Any = None) -> Any:
        """Returns what the task's judge found."""
        answer = exec_result.agent_answer
        if self._grounded and task.answer_fields:
            sheet = last_obs.state["apps"]["answer_sheet"]
            answer = sheet["answers"]["0"] if sheet.get("submitted") else None
        return task.evaluate(init_obs, last_obs, answer)
