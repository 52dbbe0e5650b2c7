"""Turns groups of trajectories (one task, one seed, one policy version) into rollouts with advantages.

A verifier's reward is 1 for success and 0 for failure, or the reward itself for a graded task. Without a verifier, the
reward is the judge's score in [0, 1], in the same batch (hybrid rewards, Seed1.5-VL, arXiv 2505.07062). An environment
failure has no reward. Pass@k needs success or failure, so its forms convert graded rewards and scores to 1 or 0 by the
threshold of the task or the judge. All steps of a trajectory get its advantage (ZeroGUI). Groups whose rewards are all
equal are left out (dynamic sampling). If configured, a stored success, preferably of the same seed, replaces the last
trajectory of a group without success (ARPO, arXiv 2505.16282). This policy did not sample the stored tokens, so they
have no behaviour log probabilities.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np

from learning.algorithms.advantages import (
    SAME,
    Floats,
    adaptive,
    analytic,
    bootstrap,
    centred,
    combined,
    exceeding,
    full_sampling,
    is_informative,
    of_group,
    soft_overlong,
)
from learning.data.files import Rollout
from models.families.family import ModelFamily
from models.families.registry import reply_limit
from models.vlm import CUT
from schemas.action import from_json_list
from schemas.config.policy import PolicyConfig
from schemas.config.training import GroupConfig
from schemas.context import ContextRule
from schemas.failure import FlywheelError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStep:
    """A step of a trajectory in the lake."""

    trajectory_id: str
    task_id: str
    seed: int
    instruction: str
    step: int | None
    """Number of the step. This and all other fields of the step are None for a trajectory without steps."""
    screenshot: str
    thought: str
    actions: Sequence[str]
    """Canonical JSON of each action of the reply, in order; empty if the reply has no action."""
    action_error: str | None = None
    """Reason why an action was not performed, or why the reply has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActingStep(StoredStep):
    """A step of a trajectory of the policy; fields as in `storage/queries/training_replies.sql`."""

    sampling: str
    raw_text: str
    token_ids: Sequence[int] | None
    logprobs: Sequence[float] | None
    policy_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStep(ActingStep):
    """A step of a trajectory of a group; fields as in `storage/queries/training_groups.sql`."""

    group_id: str
    attempt: int
    success: bool | None
    reward: float | None
    judge: str | None = None
    """Version of the judge that gave the reward; None for a verifier's reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationStep(StoredStep):
    """A step of a stored success; fields as in `storage/queries/demonstrations.sql`."""

    reward: float
    screen_width: int
    screen_height: int


@dataclass(frozen=True, slots=True)
class Member:
    """A trajectory of a group: its rollouts, still without advantages, and its reward (NaN for an environment
    failure)."""

    seed: int
    reward: float
    rollouts: tuple[Rollout, ...]
    without_action: tuple[bool, ...]
    """Whether the reply of each rollout held no action."""
    success: bool
    """Whether the trajectory reached its task's goal; False for an environment failure."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Training rollouts of a group method, and counts of their groups."""

    rollouts: list[Rollout]
    groups: int
    informative: int
    """Number of groups with at least one rollout."""
    injected: int
    environment_failures: int


def members_of(rows: Sequence[GroupStep], policy: PolicyConfig, group: GroupConfig) -> dict[str, list[Member]]:
    """Builds the trajectories of each group from their steps in order.

    Raises:
        FlywheelError: a step that a policy chose has no token ids or log probabilities, unless the config recomputes
            them.
    """
    steps: dict[tuple[str, str], list[GroupStep]] = {}
    for row in rows:
        steps.setdefault((row.group_id, row.trajectory_id), []).append(row)
    found: dict[str, list[Member]] = {}
    for (name, _), chosen in steps.items():
        found.setdefault(name, []).append(_member(chosen, policy, group))
    return found


def demonstration(rows: Sequence[DemonstrationStep], family: ModelFamily) -> Member:
    """Builds a trajectory of a group from a stored success, as the policy's family writes it.

    `rows` are the success's steps on the shortest path through its screens.
    """
    replies = [
        family.taught(row.thought, from_json_list(row.actions), (row.screen_width, row.screen_height)) for row in rows
    ]
    rollouts = [_rollout(rows, number, replies, family.rule) for number in range(len(rows))]
    return Member(rows[0].seed, rows[0].reward, tuple(rollouts), (False,) * len(rollouts), success=True)


def train_on(
    groups: Mapping[str, Sequence[Member]],
    stored: Callable[[str, int], Member | None],
    config: GroupConfig,
    seed: int,
) -> Groups:
    """Builds rollouts of the informative groups, with their advantages; rollouts without an advantage are left out.

    Args:
        groups: trajectories by group.
        stored: finds a stored success for a group without success, by its task and seed, or None; used only if
            `config.inject`.
        config: the form of advantages, and k.
        seed: draws the bootstrap's groups.
    """
    kept: list[list[Member]] = []
    injected = 0
    for members in groups.values():
        shown = list(members)
        if config.inject and (success := _missing(shown, stored)):
            valid = [at for at, member in enumerate(shown) if math.isfinite(member.reward)]
            shown[valid[-1]] = success
            injected += 1
        if is_informative([member.reward for member in shown], config.spread):
            kept.append(shown)
    advantages = group_advantages(
        [np.array([member.reward for member in members]) for members in kept], kept, config, seed
    )
    by_group = [
        [
            replace(rollout, advantage=float(gain))
            for member, gain in zip(members, gains, strict=True)
            for rollout in member.rollouts
            if abs(gain) > SAME
        ]
        for members, gains in zip(kept, advantages, strict=True)
    ]
    left = _uncertain(by_group, config.entropy_share)
    rollouts = list(chain.from_iterable(left))
    failures = sum(not math.isfinite(member.reward) for members in groups.values() for member in members)
    return Groups(rollouts, len(groups), sum(map(bool, left)), injected, failures)


def group_advantages(
    rewards: Sequence[Floats], members: Sequence[Sequence[Member]], config: GroupConfig, seed: int
) -> list[Floats]:
    """Computes the advantages of every group's trajectories by the configured form; environment failures get 0."""
    if config.advantage == "adaptive":
        valid = [np.isfinite(group) for group in rewards]
        whole = [group[there] for group, there in zip(rewards, valid, strict=True)]
        made = adaptive(whole, [_entropy(group) for group in members], config.k)
        found = [np.zeros(len(group)) for group in rewards]
        for into, there, values in zip(found, valid, made, strict=True):
            into[there] = values
        return found
    form = _form(config, np.random.default_rng(seed))
    return [of_group(group, form) for group in rewards]


def teaches(rewards: Sequence[float], config: GroupConfig) -> bool:
    """Checks whether a group's rewards can give it an advantage other than 0 by the configured form.

    Args:
        rewards: rewards of the group's trajectories; NaN for environment failures.
        config: the form of advantages, and k.
    """
    if not is_informative(rewards, config.spread):
        return False
    # Both forms depend on the batch or on random draws, but they are 0 if the advantages of Pass@1 are.
    form = partial(analytic, k=1) if config.advantage in ("adaptive", "bootstrap") else _form(config)
    return bool((np.abs(of_group(rewards, form)) > SAME).any())


def _form(config: GroupConfig, rng: np.random.Generator | None = None) -> Callable[[Floats], Floats]:
    """Returns the function from one group's rewards to its advantages; the bootstrap draws its groups with `rng`."""
    forms: dict[str, Callable[[Floats], Floats]] = {
        "pass1": centred,
        "passk": lambda group: analytic(group, config.k),
        "full": lambda group: full_sampling(group, config.k),
        "bootstrap": lambda group: bootstrap(group, config.k, len(group), rng or np.random.default_rng()),
        "combined": lambda group: combined(group, config.k),
        "exceeding": lambda group: exceeding(group, config.k),
    }
    return forms[config.advantage]


def _missing(members: Sequence[Member], stored: Callable[[str, int], Member | None]) -> Member | None:
    """Finds a stored success for a group without success."""
    valid = [member for member in members if math.isfinite(member.reward)]
    if not valid or any(member.success for member in valid):
        return None
    task = next((rollout.task_id for member in valid for rollout in member.rollouts), None)
    return stored(task, valid[0].seed) if task else None


def _entropy(members: Sequence[Member]) -> float:
    """Estimates the entropy of the sampled tokens as the mean of -log p, in nats."""
    drawn = [value for member in members for rollout in member.rollouts for value in rollout.logprobs]
    return -sum(drawn) / len(drawn) if drawn else 0.0


def _uncertain(groups: list[list[Rollout]], share: float) -> list[list[Rollout]]:
    """Keeps the share of steps whose replies were sampled with the most entropy (DART-GUI, arXiv 2509.23866).

    A reply's entropy is estimated by the mean -log p of its tokens. Of replies to similar states, the rarer reply is
    kept, so the remaining advantages of a group need not add up to 0.

    Replies without recorded log probabilities, such as those of a stored success, are all kept.
    """
    known = [-sum(one.logprobs) / len(one.logprobs) for group in groups for one in group if one.logprobs]
    if share == 1.0 or not known:
        return groups
    least = sorted(known, reverse=True)[math.ceil(share * len(known)) - 1]
    return [
        [one for one in group if not one.logprobs or -sum(one.logprobs) / len(one.logprobs) >= least]
        for group in groups
    ]


Acting = TypeVar("Acting", bound=ActingStep)


def replies_of(rows: Sequence[Acting]) -> list[Acting]:
    """Selects the steps that are replies. A call with several actions counts only once, by its first step."""
    return [row for row in rows if row.step is not None and not (row.token_ids is None and row.raw_text == "")]


def asked_of(replies: Sequence[ActingStep], rule: ContextRule) -> list[Rollout]:
    """Collects each reply of a trajectory with its prompt."""
    texts = [row.raw_text for row in replies]
    return [_rollout(replies, number, texts, rule) for number in range(len(replies))]


def sampled_of(steps: Sequence[ActingStep], rule: ContextRule) -> list[Rollout]:
    """Collects each reply of a trajectory with its prompt, sampled tokens and log probabilities.

    Raises:
        FlywheelError: a reply has no token ids or log probabilities.
    """
    rollouts = []
    for row, drawn in zip(steps, asked_of(steps, rule), strict=True):
        if row.token_ids is None or row.logprobs is None:
            raise FlywheelError(
                f"Step {row.step} of trajectory {row.trajectory_id} has no token ids or log probabilities.",
                "This method trains on steps of a model with log probabilities.",
            )
        tokens, logprobs = tuple(row.token_ids), tuple(row.logprobs)
        rollouts.append(replace(drawn, token_ids=tokens, logprobs=logprobs, temperature=_temperature(row)))
    return rollouts


def written_of(steps: Sequence[GroupStep], rule: ContextRule) -> list[Rollout]:
    """Collects each reply of a trajectory with its prompt and text, whose tokens and log probabilities are unknown."""
    return [
        replace(drawn, temperature=_temperature(row), ended=not (row.action_error or "").startswith(CUT))
        for row, drawn in zip(steps, asked_of(steps, rule), strict=True)
    ]


def _temperature(row: ActingStep) -> float:
    return float(json.loads(row.sampling)["temperature"])


def _member(rows: Sequence[GroupStep], policy: PolicyConfig, group: GroupConfig) -> Member:
    steps = replies_of(rows)
    rollouts = (written_of if group.recompute else sampled_of)(steps, policy.context_rule)
    worth = rows[0].reward if group.advantage == "pass1" else rows[0].success
    without_action = tuple(not row.actions for row in steps)
    reward = _reward(worth, rollouts, policy, group)
    return Member(rows[0].seed, reward, tuple(rollouts), without_action, success=bool(rows[0].success))


def _reward(worth: float | None, rollouts: Sequence[Rollout], policy: PolicyConfig, group: GroupConfig) -> float:
    """Computes the trajectory's reward, with the mean overlong penalty of its replies, if any; NaN for None."""
    if worth is None:
        return math.nan
    if not group.overlong or not rollouts:
        return float(worth)
    lengths = [len(rollout.token_ids) for rollout in rollouts]
    return float(worth) + float(soft_overlong(lengths, reply_limit(policy), group.overlong).mean())


def _rollout(steps: Sequence[StoredStep], number: int, replies: Sequence[str], rule: ContextRule) -> Rollout:
    row, screens = steps[number], steps[rule.folded(number + 1) : number + 1]
    assert row.step is not None
    return Rollout(
        trajectory_id=row.trajectory_id,
        step=row.step,
        task_id=row.task_id,
        screenshots=tuple(seen.screenshot for seen in screens),
        instruction=row.instruction,
        past_replies=tuple(replies[:number]),
        reply=replies[number],
        past_errors=tuple(past.action_error or "" for past in steps[:number]),
    )
