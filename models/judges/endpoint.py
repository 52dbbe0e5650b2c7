"""Judges with a model behind any OpenAI-compatible server: requests JSON by a schema, and reads it strictly."""

import base64
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from pydantic import Field

from common.picture import stored_plain
from common.text import storable
from models.judges.judge import Judge, JudgeCase, JudgeFailure, Judgement
from models.serving.openai import Endpoint, EndpointOptions, NoAnswer, OpenAIClient
from schemas.config.section import Count

RULES = (
    "You judge whether a graphical interface was used as instructed. You get the instruction, everything the agent "
    "said, step by step from step 0, and the last screenshots, the final one last. Judge only by what is there. Answer "
    "with JSON: `score`, from 0 (not done) to 1 (done entirely), and `reason`, one sentence."
)
PAIR_RULES = (
    "You compare two trajectories in which a graphical interface was used as instructed. You get the instruction, then "
    "of trajectory A and of trajectory B everything the agent wrote and the last screenshots, the final one last. "
    "Judge only by what is there. Answer with JSON: `better`, A or B, and `reason`, one sentence."
)


def _schema(name: str, **properties: Any) -> dict[str, Any]:
    """Builds a strict schema of an object with these properties."""
    required = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "strict": True, "schema": {**required, "additionalProperties": False}}


SCHEMA = _schema("judgement", score={"type": "number"}, reason={"type": "string"})
PAIR_SCHEMA = _schema("comparison", better={"type": "string", "enum": ["A", "B"]}, reason={"type": "string"})


class JudgeEndpointOptions(EndpointOptions):
    """`judge.options` of `judge.kind=endpoint`."""

    key_variable: str = "FLYWHEEL_JUDGE_KEY"
    temperature: float = Field(0.0, ge=0.0)
    """Sampling temperature of the answers. Above 0 they differ, which several votes need (ZeroGUI: 1)."""
    concurrency: Count = 8
    """Maximum concurrent requests when several trajectories are judged together."""


MOST_REASON = 4_000
"""Maximum length of a stored reason, in characters."""


class EndpointJudge(Judge[JudgeEndpointOptions]):
    """Asks a served model; requests that fail are repeated `tries` times in all, and so are answers that are none."""

    section = JudgeEndpointOptions
    reached = frozenset(JudgeEndpointOptions.model_fields)  # the name has model and temperature
    prompt = RULES + json.dumps(SCHEMA)

    def __init__(self, options: JudgeEndpointOptions, tries: int = 1) -> None:
        super().__init__(options, tries)
        self.name = f"{options.model}@{options.temperature:g}" if options.temperature else options.model
        self.draws = options.temperature > 0
        self._client = OpenAIClient(
            Endpoint("judge.options", options.url, options.key_variable, options.timeout_s, tries - 1)
        )

    def require(self) -> None:
        """Checks that the server answers and takes the key."""
        self._client.require()

    def _judge(self, cases: Sequence[JudgeCase]) -> list[Judgement]:
        if len(cases) < 2:
            return [self._tried(case) for case in cases]
        with ThreadPoolExecutor(self.options.concurrency) as threads:
            return list(threads.map(self._tried, cases))

    def _score(self, case: JudgeCase) -> Judgement:
        text, tokens = self._asked(RULES, _content(case), SCHEMA)
        fields = _fields(text)
        score, reason = fields.get("score"), fields.get("reason")
        if isinstance(score, bool) or not isinstance(score, int | float) or not isinstance(reason, str):
            raise JudgeFailure("an answer without a score and a reason")
        try:
            return Judgement(float(score), storable(reason)[:MOST_REASON], tokens)
        except OverflowError as error:
            raise JudgeFailure("a score that is not a finite number") from error

    def _prefer(self, first: JudgeCase, second: JudgeCase) -> float:
        parts = [[{"type": "text", "text": f"Trajectory {name}:"}] for name in "AB"]
        content = [*parts[0], *_content(first), *parts[1], *_content(second)]
        better = _fields(self._asked(PAIR_RULES, content, PAIR_SCHEMA)[0]).get("better")
        if better not in ("A", "B"):
            raise JudgeFailure("an answer that names neither A nor B")
        return float(better == "A")

    def _asked(self, rules: str, content: list[dict[str, Any]], schema: dict[str, Any]) -> tuple[str, int]:
        """Requests an answer; returns its text and the number of tokens used."""
        body = {
            "model": self.options.model,
            "messages": [{"role": "system", "content": rules}, {"role": "user", "content": content}],
            "response_format": {"type": "json_schema", "json_schema": schema},
            "temperature": self.options.temperature,
        }
        try:
            choice = self._client.chat(body)
        except NoAnswer as failure:
            raise JudgeFailure(str(failure), again=False) from failure
        return choice["text"], choice["tokens"]


def _content(case: JudgeCase) -> list[dict[str, Any]]:
    """Builds a case's text and pictures as parts of a message."""
    replies = "\n".join(f"Step {number}:\n{reply}" for number, reply in enumerate(case.replies))
    pictures = [
        {
            "type": "image_url",
            "image_url": {"url": f"data:image/png;base64,{base64.b64encode(stored_plain(png)).decode()}"},
        }
        for png in case.screens
    ]
    return [{"type": "text", "text": f"Instruction: {case.instruction}\n\n{replies}"}, *pictures]


def _fields(text: str) -> dict[str, Any]:
    """Parses the fields of an answer; raises JudgeFailure for anything but a JSON object."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JudgeFailure("an answer that is not the JSON asked for") from error
    if not isinstance(fields, dict):
        raise JudgeFailure("an answer that is not the JSON asked for")
    return cast("dict[str, Any]", fields)
