"""Rebuild the prompts of policies from stored steps, as tokens. No table stores these tokens.

`learning.data.documents` builds each prompt, as in training. The column `sampling` of the trajectory has the settings
that shaped the prompt. The policy's checkpoint has the tokenizer; its weights are not needed.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile
from typing import Any

from learning.algorithms.groups import GroupStep, asked_of, replies_of
from learning.data.documents import chat_of
from learning.data.files import Rollout
from models.families.family import ModelFamily
from models.families.outside import sent, tokens_of
from models.families.processor import PromptTokens, read_processor
from models.families.prompt import Message
from models.families.registry import family_of
from models.language_model import BACKENDS
from models.vlm import backend_of
from schemas.config.policy import PolicyConfig
from schemas.context import ContextRule
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


class _NoPrompt(Exception):
    """A prompt cannot be rebuilt; the text is the reason."""


@dataclass(frozen=True, slots=True)
class _ChatReader:
    """Family and tokenizer of a policy."""

    family: ModelFamily
    ids: Ids


class Prompts:
    """Rebuilds the prompts of a lake's trajectories, and counts the missing prompts.

    Args:
        lake: the lake with the policies and their checkpoints.
    """

    def __init__(self, lake: Lake) -> None:
        self.missing = Counter[str]()
        """Number of missing prompts, by reason."""
        self._lake = lake
        self._policies: Mapping[str, PolicyVersion] | None = None
        self._readers: dict[tuple[str, str, str], _ChatReader | str] = {}

    def of(self, trajectory: Trajectory, steps: Sequence[Step]) -> dict[int, tuple[int, ...]]:
        """Return the prompt's tokens by step number, for each step whose reply is stored as tokens.

        Args:
            trajectory: the row of the trajectory.
            steps: all steps of the trajectory, in order.
        """
        sampled = {step.step: step for step in steps if step.token_ids}
        if not sampled:
            return {}
        found: dict[int, tuple[int, ...]] = {}
        asked = json.loads(trajectory.sampling).get("asked")
        replies = replies_of([_row(trajectory, step) for step in steps])
        sizes = {step.screenshot: (step.screen_width, step.screen_height) for step in steps}
        own = _own_steps(steps)
        rollouts = asked_of(replies, ContextRule.recorded(asked)) if asked else []
        made = {rollout.step: rollout for rollout in rollouts}
        for number, step in sampled.items():
            try:
                if trajectory.continues is not None:
                    raise _NoPrompt(CORRECTED)
                if asked is None:
                    raise _NoPrompt(UNRECORDED)
                if number not in own:
                    raise _NoPrompt(MIXED)
                reader = self._reader(self._version(step, trajectory), step.family or "auto", asked)
                found[number] = tuple(_ids(reader, made[number], sizes))
            except _NoPrompt as unknown:
                self.missing[str(unknown)] += 1
        return found

    def _version(self, step: Step, trajectory: Trajectory) -> str:
        """Return the name of a stored policy with the tokenizer of a step's policy.

        With a stream, a step names updated weights `CANDIDATE+UPDATES`. The lake may lack the candidate. The
        trajectory's own policy version then has the same tokenizer.
        """
        if self._policies is None:
            self._policies = policies(self._lake)
        candidate, renewed, _ = step.policy_version.rpartition("+")
        names = (step.policy_version, *((candidate, trajectory.policy_version) if renewed else ()))
        return next((name for name in names if name in self._policies), names[0])

    def _reader(self, version: str, family: str, asked: Mapping[str, Any]) -> _ChatReader:
        """Return the family and tokenizer of a policy, from a cache.

        Raises:
            _NoPrompt: the checkpoint is missing or unreadable, or the policy ran on the user's own backend.
        """
        key = (version, family, json.dumps(asked, sort_keys=True))
        if key not in self._readers:
            try:
                self._readers[key] = self._load_reader(version, family, asked)
            except _NoPrompt as unknown:
                self._readers[key] = str(unknown)
        if isinstance(reader := self._readers[key], str):
            raise _NoPrompt(reader)
        return reader

    def _load_reader(self, version: str, family: str, asked: Mapping[str, Any]) -> _ChatReader:
        assert self._policies is not None
        backend = asked["backend"]
        if backend != "auto" and backend not in BACKENDS.names:
            raise _NoPrompt(f"the custom backend {backend} read them")
        if version not in self._policies:
            raise _NoPrompt(f"there is no policy {version}")
        try:
            directory = unweighted_folder(self._lake, version)
        except CheckpointError as error:
            raise _NoPrompt(f"the checkpoint of {version} is not there: {error.problem}") from error
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
            raise _NoPrompt(f"the checkpoint of {version} cannot be read: {why}") from error


def _ids(reader: _ChatReader, rollout: Rollout, sizes: Mapping[str, tuple[int, int]]) -> list[int]:
    """Return the prompt's tokens of a step."""
    chat, _ = chat_of(rollout, reader.family, [sizes[name] for name in rollout.screenshots], 0)
    try:
        return reader.ids(chat)
    except (ValueError, TypeError, StopIteration, IndexError, KeyError, NotImplementedError) as error:
        raise _NoPrompt(f"the checkpoint's processor refuses the chat: {error!r}"[:200]) from error


def _own_steps(steps: Sequence[Step]) -> set[int]:
    """Return the numbers of the first steps, up to the first step of another actor or of a policy of another family."""
    own = takewhile(lambda one: (one.actor, one.family) == ("policy", steps[0].family), steps)
    return {step.step for step in own}


def _row(trajectory: Trajectory, step: Step) -> GroupStep:
    """Convert a step to a row of the kind that training on groups reads."""
    known = {**vars(trajectory), **vars(step), "group_id": trajectory.group_id or ""}
    return GroupStep(**{field.name: known[field.name] for field in fields(GroupStep) if field.name in known})
