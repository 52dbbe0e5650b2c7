"""Rebuild the tokens of the prompts that policies read, from stored steps.

No table stores them. A prompt is built as in training (`learning.data.documents`), with the trajectory's own settings
of its policy (`sampling`), and with the tokenizer of the checkpoint that acted, whose weights are not needed.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from learning.algorithms.groups import GroupStep, asked_of, replies_of
from learning.data.documents import chat_of
from learning.data.rollouts import Rollout
from models.families.family import ModelFamily
from models.families.outside import sent, tokens_of
from models.families.processor import read_processor
from models.families.prompt import Message
from models.families.registry import family_of
from models.families.same_prompt import PromptTokens
from models.language_model import BACKENDS
from models.vlm import backend_of
from schemas.config.policy import PolicyConfig
from schemas.failure import CheckpointError, FlywheelError
from schemas.tables.policy import PolicyVersion
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.shared.policies import policies
from tasks.shared.weights import unweighted_folder

UNRECORDED = "their trajectories do not record how the policy was asked"
CORRECTED = "they go on from replayed steps"
MIXED = "an earlier step is not the policy's"
Ids = Callable[[Sequence[Message]], list[int]]


class _Unknown(Exception):
    """A prompt cannot be rebuilt; the text is the reason."""


@dataclass(frozen=True, slots=True)
class _ChatReader:
    """A policy's way to read a chat."""

    family: ModelFamily
    ids: Ids


class Prompts:
    """Rebuilds the prompts of a lake's trajectories, and counts those that it cannot rebuild.

    Args:
        lake: the lake with the policies.
    """

    def __init__(self, lake: Lake) -> None:
        self.missing = Counter[str]()
        """Number of missing prompts, by reason."""
        self._lake = lake
        self._policies: Mapping[str, PolicyVersion] | None = None
        self._readers: dict[tuple[str, str, str], _ChatReader | str] = {}

    def of(self, trajectory: Trajectory, steps: Sequence[Step]) -> dict[int, tuple[int, ...]]:
        """Return the tokens of the prompts of those steps whose replies are stored as tokens, by step.

        Args:
            trajectory, steps: the rows, all of the steps in order.
        """
        sampled = {step.step: step for step in steps if step.token_ids}
        if not sampled:
            return {}
        found: dict[int, tuple[int, ...]] = {}
        asked = json.loads(trajectory.sampling).get("asked")
        replies = replies_of([_row(trajectory, step) for step in steps])
        sizes = {step.screenshot: (step.screen_width, step.screen_height) for step in steps}
        own = _own(steps)
        rollouts = asked_of(replies, int(asked["history_images"])) if asked else []
        made = {rollout.step: rollout for rollout in rollouts}
        for number, step in sampled.items():
            try:
                if trajectory.continues is not None:
                    raise _Unknown(CORRECTED)
                if asked is None:
                    raise _Unknown(UNRECORDED)
                if number not in own:
                    raise _Unknown(MIXED)
                reader = self._reader(self._version(step, trajectory), step.family or "auto", asked)
                found[number] = tuple(_ids(reader, made[number], sizes))
            except _Unknown as unknown:
                self.missing[str(unknown)] += 1
        return found

    def _version(self, step: Step, trajectory: Trajectory) -> str:
        """Return the policy whose tokenizer read a step's prompt.

        Weights renewed within an iteration are named after their candidate, which may not be stored; its tokenizer is
        that of its parent.
        """
        if self._policies is None:
            self._policies = policies(self._lake)
        candidate, renewed, _ = step.policy_version.rpartition("+")
        names = (step.policy_version, *((candidate, trajectory.policy_version) if renewed else ()))
        return next((name for name in names if name in self._policies), names[0])

    def _reader(self, version: str, family: str, asked: Mapping[str, Any]) -> _ChatReader:
        """Return a policy's chat reader, made once.

        Raises:
            _Unknown: its checkpoint is gone or cannot be read, or the user's own backend read it.
        """
        key = (version, family, json.dumps(asked, sort_keys=True))
        if key not in self._readers:
            try:
                self._readers[key] = self._made(version, family, asked)
            except _Unknown as unknown:
                self._readers[key] = str(unknown)
        if isinstance(reader := self._readers[key], str):
            raise _Unknown(reader)
        return reader

    def _made(self, version: str, family: str, asked: Mapping[str, Any]) -> _ChatReader:
        assert self._policies is not None
        backend = asked["backend"]
        if backend != "auto" and backend not in BACKENDS.names:
            raise _Unknown(f"{backend} read them, a backend of your own")
        if version not in self._policies:
            raise _Unknown(f"there is no policy {version}")
        try:
            directory = unweighted_folder(self._lake, version)
        except CheckpointError as error:
            raise _Unknown(f"the checkpoint of {version} is not there: {error.problem}") from error
        try:
            shaped = {name: value for name, value in asked.items() if name != "backend"}
            policy = PolicyConfig.model_validate({**shaped, "family": family})
            one = family_of(policy, directory)
            if backend != "server" and backend_of(policy.model_copy(update={"backend": backend}), directory) == "tiny":
                from models.tiny.generator import TinyPrompts

                return _ChatReader(one, TinyPrompts(directory))
            ids = PromptTokens(read_processor(directory), one.limits)
            if backend == "server":
                tokens = tokens_of(directory)
                return _ChatReader(one, lambda chat: ids(sent(chat, tokens)))
            return _ChatReader(one, ids)
        except (FlywheelError, ValueError) as error:
            why = error.problem if isinstance(error, FlywheelError) else str(error).splitlines()[0]
            raise _Unknown(f"the checkpoint of {version} cannot be read: {why}") from error


def _ids(reader: _ChatReader, rollout: Rollout, sizes: Mapping[str, tuple[int, int]]) -> list[int]:
    """Return the tokens of the prompt of a step."""
    chat, _ = chat_of(rollout, reader.family, [sizes[name] for name in rollout.screenshots], 0)
    try:
        return reader.ids(chat)
    except (ValueError, TypeError, StopIteration, IndexError, KeyError, NotImplementedError) as error:
        raise _Unknown(f"the checkpoint's processor refuses the chat: {error!r}"[:200]) from error


def _own(steps: Sequence[Step]) -> set[int]:
    """Return the steps before which only policies of one family replied."""
    return {step.step for step in takewhile(lambda one: _continued(one, steps[0]), steps)}


def _continued(step: Step, first: Step) -> bool:
    return step.actor == first.actor == "policy" and step.family == first.family


def _row(trajectory: Trajectory, step: Step) -> GroupStep:
    """Convert a step to the rows that training by groups reads."""
    return GroupStep(
        trajectory_id=trajectory.trajectory_id,
        task_id=trajectory.task_id,
        seed=trajectory.seed,
        instruction=trajectory.instruction,
        step=step.step,
        screenshot=step.screenshot,
        thought=step.thought,
        action=step.action,
        group_id=trajectory.group_id or "",
        attempt=trajectory.attempt,
        success=trajectory.success,
        sampling=trajectory.sampling,
        reward=trajectory.reward,
        raw_text=step.raw_text,
        token_ids=step.token_ids,
        logprobs=step.logprobs,
        policy_version=step.policy_version,
    )
