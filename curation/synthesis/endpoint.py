"""Make tasks and rewards with models behind any OpenAI-compatible server; neither maker sees the other's work.

Answers are JSON and parsed strictly: any other answer is a rejected proposal, with the parse error.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field, JsonValue, ValidationError

from curation.synthesis.maker import MakerInputs, ProposedTask, RewardMaker, TaskMaker, Unreadable
from models.serving.openai import Endpoint, NoAnswer, OpenAIClient, RepeatedEndpointOptions
from schemas.config.section import Count, Positive
from schemas.problem import problem_of
from schemas.world import FieldCheck, World

RULES = (
    "You invent tasks for an agent that uses a graphical interface. You get the fields of its state, some of its "
    "pages and tasks that there are. Invent one new task. Answer with one JSON object and nothing else: `instruction`, "
    "one or two sentences that only one final state fits; `initial`, the state it starts from; `golden`, the state in "
    "which it is done, equal to `initial` in every field that the task does not ask to change, the page as well; "
    "`near_misses`, three states that look done and are not; `parents`, ids of the tasks it is like. "
    "Every state has all of the fields."
)
REWARD_RULES = (
    "You write the reward of a task for an agent that uses a graphical interface. You get the instruction, the fields "
    "of the state and the pages. Answer with one JSON object and nothing else: `checks`, a list of objects with "
    "`field` and `value`: the values that these fields have if and only if the task is done. "
    "Name every field that the task asks for and no other; that the others stay as they were is checked anyway."
)
UNMEASURED = 20
"""Step limit of a task without pages to search."""
SHOWN = 40
"""Maximum number of pages shown to the maker of tasks."""


class MakerEndpointOptions(RepeatedEndpointOptions):
    """Options in `synthesis.options.endpoint`, and of the reward maker in `synthesis.options.reward`."""

    key_variable: str = "FLYWHEEL_SYNTHESIS_KEY"
    temperature: Positive = 1.0
    """Sampling temperature of the answers."""
    max_tokens: Count = 1024
    """Maximum tokens of an answer."""


class _EndpointTask(BaseModel, extra="forbid", strict=True):
    instruction: str
    initial: dict[str, JsonValue]
    golden: dict[str, JsonValue]
    near_misses: Annotated[list[dict[str, JsonValue]], Field(max_length=20)]
    parents: list[str] = []


class _ProposedReward(BaseModel, extra="forbid", strict=True):
    checks: Annotated[list[FieldCheck], Field(min_length=1, max_length=20)]


class EndpointMaker(TaskMaker[MakerEndpointOptions]):
    """Asks a served model for tasks."""

    section = MakerEndpointOptions
    needs_site = False

    def require(self) -> None:
        """Check that the server answers and accepts the key."""
        _client(self.options, self.name).require()

    def propose(self, material: MakerInputs, chance: random.Random) -> Iterator[ProposedTask]:
        """Yield a proposal for each answer; a server that does not answer ends them."""
        client = _client(self.options, "endpoint")
        while True:
            seed = chance.randrange(2**31)
            empty = ProposedTask(self.name, self.version, material.environment, f"answer {seed}", {}, {}, (), (), 1)
            try:
                body = _body(self.options, RULES, _prompt(material, random.Random(seed)), seed)
                yield self._read(material, client.chat(body)["text"], empty)
            except NoAnswer as failure:
                yield replace(empty, problem=f"no answer: {failure}")
                return

    def _read(self, material: MakerInputs, text: str, empty: ProposedTask) -> ProposedTask:
        try:
            found = _EndpointTask.model_validate_json(text)
        except ValidationError as error:
            return replace(empty, problem=_wrong(error))
        if strange := set(found.parents) - {one.task_id for one in material.parents}:
            return replace(empty, problem=f"parents: there is no task {min(strange)!r:.80}")
        roots = tuple(material.root(verb) for verb in material.world.roots)
        return replace(
            empty,
            instruction=found.instruction,
            initial=found.initial,
            golden=found.golden,
            near_misses=tuple(found.near_misses),
            parents=tuple(found.parents) or roots,
            max_steps=0 if material.layout else UNMEASURED,
            tags=(self.name,),
        )


class EndpointReward(RewardMaker[MakerEndpointOptions]):
    """Asks a served model for rewards."""

    section = MakerEndpointOptions

    def require(self) -> None:
        """Check that the server answers and accepts the key."""
        _client(self.options, "reward").require()

    def checks(self, instruction: str, world: World) -> tuple[FieldCheck, ...]:
        """Ask the model for the checks of an instruction."""
        asked = json.dumps({"instruction": instruction, **_schema(world), "pages": _pages(world)})
        try:
            text = _client(self.options, "reward").chat(_body(self.options, REWARD_RULES, asked, 0))["text"]
            found = _ProposedReward.model_validate_json(text).checks
        except NoAnswer as failure:
            raise Unreadable(f"no answer: {failure}") from failure
        except ValidationError as error:
            raise Unreadable(_wrong(error)) from error
        known = {field.name for field in world.fields}
        if strange := [one.field for one in found if one.field not in known]:
            raise Unreadable(f"checks: there is no field {strange[0]!r:.80}")
        return tuple(found)


def _prompt(material: MakerInputs, chance: random.Random) -> str:
    pages = _pages(material.world)
    tasks = {one.task_id: one.instruction for one in material.parents}
    shown = chance.sample(pages, min(SHOWN, len(pages)))
    return json.dumps({**_schema(material.world), "pages": shown, "tasks": tasks})


def _schema(world: World) -> dict[str, Any]:
    tasks = {"tasks_in_turn": dict(world.parts)} if world.parts else {}
    return {"fields": [field.model_dump() for field in world.fields], "other_pages": list(world.pages), **tasks}


def _pages(world: World) -> list[dict[str, Any]]:
    return [one.model_dump() for one in world.site.entities] if world.site else []


def _body(options: MakerEndpointOptions, rules: str, asked: str, seed: int) -> dict[str, Any]:
    return {
        "model": options.model,
        "messages": [{"role": "system", "content": rules}, {"role": "user", "content": asked}],
        "temperature": options.temperature,
        "max_tokens": options.max_tokens,
        "seed": seed,
        "response_format": {"type": "json_object"},
    }


def _wrong(error: ValidationError) -> str:
    where, problem = problem_of(error)
    return f"{where[:80] or 'answer'}: {problem}"


def _client(options: MakerEndpointOptions, name: str) -> OpenAIClient:
    section = f"synthesis.options.{name}"
    return OpenAIClient(Endpoint(section, options.url, options.key_variable, options.timeout_s, options.retries))
