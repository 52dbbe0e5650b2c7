"""A judge behind any server that speaks OpenAI's chat completions.

The key comes from the environment variable `FLYWHEEL_JUDGE_KEY` alone and appears in no config, table or message; a
server that wants none gets none. The answer is asked for as JSON by a schema, and read strictly.
"""

import base64
import json
import os
from typing import Any

import httpx

from models.judges.judge import Case, Judge, JudgeFailure, Judgement
from schemas.config.sections import JudgeConfig

KEY = "FLYWHEEL_JUDGE_KEY"
RULES = (
    "You judge whether a graphical interface was used as instructed. You get the instruction, everything the player "
    "said, and the last screenshots, the final one last. Judge only by what is there. Answer with JSON: `score`, from "
    "0 (not done) to 1 (done entirely), and `reason`, one sentence."
)
SCHEMA: dict[str, Any] = {
    "name": "judgement",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {"score": {"type": "number"}, "reason": {"type": "string"}},
        "required": ["score", "reason"],
        "additionalProperties": False,
    },
}


class EndpointJudge(Judge):
    """Asks a served model.

    Args:
        config: `url` is the base url, for example `http://127.0.0.1:8000/v1`; `model` the model's name there.
    """

    def __init__(self, config: JudgeConfig) -> None:
        self.name, self.tries = config.model, config.tries
        self._url = f"{config.url.rstrip('/')}/chat/completions"
        self._timeout_s = config.timeout_s

    def _score(self, case: Case) -> Judgement:
        key = os.environ.get(KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            answer = httpx.post(self._url, json=self._asked(case), headers=headers, timeout=self._timeout_s)
            answer.raise_for_status()
        except httpx.HTTPStatusError as error:
            raise JudgeFailure(f"HTTP status {error.response.status_code}") from error
        except httpx.HTTPError as error:
            raise JudgeFailure(f"no answer ({type(error).__name__})") from error
        return _read(answer)

    def _asked(self, case: Case) -> dict[str, Any]:
        said = "\n".join(f"Step {number}:\n{reply}" for number, reply in enumerate(case.replies, 1))
        pictures = [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png).decode()}"}}
            for png in case.screens
        ]
        text = {"type": "text", "text": f"Instruction: {case.instruction}\n\n{said}"}
        return {
            "model": self.name,
            "messages": [{"role": "system", "content": RULES}, {"role": "user", "content": [text, *pictures]}],
            "response_format": {"type": "json_schema", "json_schema": SCHEMA},
            "temperature": 0,
        }


def _read(answer: httpx.Response) -> Judgement:
    """The judgement in an answer; raises JudgeFailure for anything else."""
    try:
        said = json.loads(answer.json()["choices"][0]["message"]["content"])
        score, reason = said["score"], said["reason"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise JudgeFailure("an answer that is not the JSON asked for") from error
    if isinstance(score, bool) or not isinstance(score, int | float) or not isinstance(reason, str):
        raise JudgeFailure("an answer without a score and a reason")
    return Judgement(float(score), reason)
