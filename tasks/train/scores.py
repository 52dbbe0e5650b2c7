"""Read the policy's replies of the iteration, and let a served teacher score them for `opd`.

Each chunk of scores is written to the table `teacher_scores` before the next chunk starts. So an interrupted training
asks only about the rest, and a repeated training (`flywheel retrain --like`) reads the same scores.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING

from common.text import counted
from learning.algorithms.groups import ActingStep, replies_of, sampled_of
from learning.data.files import Rollout, ScoredReply, write_scored
from learning.data.sample import Screenshots
from models.families.screen import picture_png
from models.serving.openai import NoAnswer, Rejected
from models.serving.teacher import ScoreRequest, Teacher
from schemas.config import Config
from schemas.failure import FlywheelError
from schemas.table import utc_now
from schemas.tables.teacher_score import TeacherScore
from storage.catalog import answers
from storage.lake import Lake
from tasks.running.console import bar
from tasks.shared.material import PolicyRecipe, TrainingMaterial, seed_of, write_pictures
from tasks.shared.paths import work_folder
from tasks.shared.weights import checkpoint_folder, policy_family

if TYPE_CHECKING:  # importing transformers takes seconds
    from learning.engines.fsdp.chats import Chats

Key = tuple[str, int, str]
"""Trajectory, step, and digest of the request."""
TOGETHER = 64
"""Replies whose scores are written at once."""
MISREAD = 0.5
"""Share of replies that the teacher's server read as other tokens, above which training stops."""


def reply_material(config: Config, lake: Lake, recipe: PolicyRecipe) -> TrainingMaterial:
    """Return the policy's replies of the iteration with the teacher's log probabilities.

    Raises:
        FlywheelError: the teacher does not answer, or its server reads other tokens than are sent. Scores so far are
            kept.
    """
    sampled = [one for one in _sampled(config, lake, recipe) if one.token_ids]
    replies = [one for one in sampled if one.temperature == 1.0]
    scores = Scoring(config, lake, recipe, replies).scores() if replies else []
    scored = [_scored(reply, found) for reply, found in zip(replies, scores, strict=True) if found]
    left = {"other_temperature": len(sampled) - len(replies), "misread": len(replies) - len(scored)}
    out = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in left.items() if count)
    without = f"; left out: {out}" if out else ""
    return TrainingMaterial(
        write=lambda path, _: write_scored(path, scored),
        samples=len(scored),
        numbers={"samples": len(scored), **left},
        summary=f"{counted(len(scored), 'reply', 'replies')} scored by {config.train.opd.model}{without}",
        nothing="" if scored else f"nothing to learn from: no reply of the policy in this iteration{without}",
    )


def _sampled(config: Config, lake: Lake, recipe: PolicyRecipe) -> Iterator[Rollout]:
    rows = answers(lake, ActingStep, "training_replies", recipe.pins, iteration=recipe.iteration)
    for _, steps in groupby(rows, key=lambda row: row.trajectory_id):
        yield from sampled_of(replies_of(list(steps)), config.policy.context_rule)


def _scored(reply: Rollout, scores: Sequence[float]) -> ScoredReply:
    return ScoredReply(**{one.name: getattr(reply, one.name) for one in fields(reply)}, teacher=tuple(scores))


def request_of(chats: "Chats", reply: Rollout) -> ScoreRequest:
    """Build the request for a reply, still without its pictures, from the tokens that the trainer reads.

    A sampled token of a picture is replaced, since no picture belongs to it. So the reply counts as misread.
    """
    ids, once, after = chats.without_placeholders(chats.encode(reply)).tolist(), list[int](), 0
    for span in chats.measure(reply).item.screens:
        once += ids[after : span.start + 1]
        after = span.start + span.tokens
    last, picture = reply.token_ids[-1], once[-1:]
    whole = [*once, *ids[after:], ids[-1] if last in picture else last]
    return ScoreRequest(whole, (), reply.token_ids, len(ids) + 1)


@dataclass(frozen=True, slots=True)
class Asked:
    """A reply to score, with the key of its row in `teacher_scores`."""

    reply: Rollout
    request: ScoreRequest
    key: Key


class Scoring:
    """Scores replies with the teacher, and keeps the scores in the lake.

    Args:
        config: the config with the teacher.
        lake: the lake with the replies' pictures, which receives the scores.
        recipe: the training.
        replies: the replies.
    """

    def __init__(self, config: Config, lake: Lake, recipe: PolicyRecipe, replies: Sequence[Rollout]) -> None:
        from learning.engines.fsdp.chats import Chats

        self._config, self._lake, self._recipe = config, lake, recipe
        self._directory = checkpoint_folder(lake, recipe.parent, to_train=True)
        self._limits = policy_family(config, lake, recipe.parent).limits
        path = work_folder(lake, recipe.version) / "scored-screenshots.arrow"
        write_pictures(path, lake, {one for reply in replies for one in reply.screenshots}, recipe.pins["screenshots"])
        self._screenshots = Screenshots(path)
        self._chats = Chats(self._directory, config.policy, self._screenshots, seed_of(config, recipe))
        self._asked = [self._prepared(reply) for reply in replies]

    def scores(self) -> list[Sequence[float]]:
        """Return the log probabilities of each reply's tokens; empty for a reply that the server read otherwise."""
        stored = self._lake.rows(TeacherScore, {"iteration": self._recipe.iteration})
        found: dict[Key, Sequence[float]] = {_key(row): row.logprobs for row in stored}
        left = [one for one in self._asked if one.key not in found]
        if left:
            settings = self._config.train.opd
            teacher = Teacher(settings)
            teacher.require(self._directory, self._config.policy)
            with bar() as progress, ThreadPoolExecutor(settings.concurrency) as threads:
                shown = progress.add_task("score", total=len(self._asked), completed=len(self._asked) - len(left))
                for at in range(0, len(left), TOGETHER):
                    chunk = left[at : at + TOGETHER]
                    found |= self._kept(chunk, list(threads.map(lambda one: self._score(teacher, one), chunk)), found)
                    progress.update(shown, advance=len(chunk))
        return [found[one.key] for one in self._asked]

    def _prepared(self, reply: Rollout) -> Asked:
        request = request_of(self._chats, reply)
        named = json.dumps([self._config.train.opd.model, request.ids, request.length, reply.screenshots])
        return Asked(reply, request, (reply.trajectory_id, reply.step, hashlib.sha256(named.encode()).hexdigest()))

    def _score(self, teacher: Teacher, asked: Asked) -> tuple[float, ...] | FlywheelError:
        pictures = [picture_png(self._screenshots.png(one), self._limits) for one in asked.reply.screenshots]
        try:
            return teacher.score(replace(asked.request, pictures=pictures)) or ()
        except NoAnswer as error:
            fix = f"serve the teacher with a context of at least {asked.request.length} tokens"
            fix = fix if isinstance(error, Rejected) else "start the teacher's server"
            problem = f"`train.opd.url`: the teacher gave no answer: {str(error).rstrip('.')}."
            return FlywheelError(problem, f"Scores so far are kept: {fix}, then run again.")
        except FlywheelError as error:
            return error

    def _kept(
        self,
        chunk: Sequence[Asked],
        made: Sequence[tuple[float, ...] | FlywheelError],
        before: Mapping[Key, Sequence[float]],
    ) -> dict[Key, Sequence[float]]:
        """Write the scores of a chunk, and return them by key. Raise the first error of the chunk."""
        answered = {one.key: found for one, found in zip(chunk, made, strict=True) if isinstance(found, tuple)}
        known = [*answered.values(), *(before[one.key] for one in self._asked if one.key in before)]
        misread = sum(not scores for scores in known)
        if misread > MISREAD * len(known):
            raise FlywheelError(
                f"`train.opd.url`: the teacher's server read {misread} of {len(known)} replies as other tokens than "
                "were sampled.",
                "Update SGLang to a release that keeps the token ids of prompts with pictures.",
            )
        self._lake.append("teacher_scores", [self._row(key, scores) for key, scores in answered.items()])
        if failure := next((one for one in made if isinstance(one, FlywheelError)), None):
            raise failure
        return dict(answered)

    def _row(self, key: Key, scores: Sequence[float]) -> TeacherScore:
        trajectory, step, request = key
        return TeacherScore(
            trajectory_id=trajectory,
            step=step,
            request=request,
            iteration=self._recipe.iteration,
            teacher=self._config.train.opd.model,
            logprobs=list(scores),
            created_at=utc_now(),
        )


def _key(row: TeacherScore) -> Key:
    return row.trajectory_id, row.step, row.request
