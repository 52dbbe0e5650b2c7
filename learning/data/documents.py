"""Encodes a document for a network as a chat and the reply that ends it: a sample to imitate, or a given reply.

Every engine calls this module, and this module calls the policy's family (`models.families`). So a policy is trained on
the same chats that it gets when it acts, and on actions in its own notation.
"""

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from learning.data.files import Rollout
from learning.data.sample import PLACE, Past, Question, TrainSample
from models.completion import Completion
from models.families.family import ModelFamily, Size
from models.families.outside import marked, marked_action
from models.families.prompt import WHAT_CHANGED, WHAT_WAS_DONE, Message, video_question
from models.families.video import Clip, clip_of
from models.policy import Context
from schemas.action import Action, Click, from_json, from_json_list, to_json
from schemas.context import ContextRule
from schemas.failure import FlywheelError
from schemas.observation import Observation, PastStep

Document = TrainSample | Rollout
ANY: Size = (1000, 1000)
"""Placeholder for a screen's size if only text is read."""


def visible_screens(document: Document, rule: ContextRule) -> tuple[str, ...]:
    """Lists the sha256 of the document's last screens, which the policy sees, oldest first."""
    return document.screenshots if isinstance(document, Rollout) else document.visible_screens(rule)


def chat_of(document: Document, family: ModelFamily, sizes: Sequence[Size], seed: int) -> tuple[list[Message], str]:
    """Builds the chat that ends before the reply, and the reply as text.

    Args:
        document: the sample or rollout to encode.
        family: the policy's family.
        sizes: sizes of the document's screens, oldest first.
        seed: the job's seed, which chooses among the questions about a screen.

    Texts from outside are marked in the chat and in the reply (`models.families.outside`).

    Raises:
        FlywheelError: the sample has neither an action nor a question.
    """
    screens = [Observation(b"", *size, "") for size in sizes]
    if isinstance(document, Rollout):
        context = _context(document.instruction, _read(document, family, screens), screens[-1])
        messages = family.chat(replace(context, thinks=family.thinks))
        return messages, family.marked_reply(document.reply)
    document = marked_sample(document, family.tokens)
    if document.kind != "step":
        return _question(document, family, screens, seed)
    if not document.actions:  # only a screen: ask where one of its elements is
        asked = _drawn(document, seed)
        where = family.reply("", [Click(x=asked.x, y=asked.y)], sizes[-1])
        return family.chat(_context(f'Click on "{asked.name}".', (), screens[-1])), where
    turns = [
        PastStep(
            step.thought,
            family.write_actions(from_json_list(step.actions), (screen.width, screen.height)),
            screen,
            step.error,
        )
        for step, screen in zip(document.history, _before(len(document.history), screens), strict=True)
    ]
    context = _context(document.instruction, turns, screens[-1])
    messages = family.chat(replace(context, thinks=document.thinks))
    return messages, family.reply(document.thought, from_json_list(document.actions), sizes[-1])


def marked_sample(sample: TrainSample, tokens: Collection[str] = ()) -> TrainSample:
    """Marks the sample's texts, so that it holds only text and typed actions, and no token of the checkpoint."""

    def mark(text: str) -> str:
        return marked(text, tokens=tokens)

    def mark_all(actions: Sequence[str]) -> tuple[str, ...]:
        return tuple(to_json(marked_action(action, tokens)) for action in from_json_list(actions))

    history = tuple(Past(mark(past.thought), mark_all(past.actions), mark(past.error)) for past in sample.history)
    return replace(
        sample,
        instruction=mark(sample.instruction),
        history=history,
        thought=mark(sample.thought),
        actions=mark_all(sample.actions),
        questions=tuple(replace(question, name=mark(question.name)) for question in sample.questions),
    )


def thought_of(document: Document, family: ModelFamily) -> str | None:
    """Returns the thought of a reply to an instruction, empty if there is none; None for an answer to a question."""
    if isinstance(document, Rollout):
        return family.read(Completion(document.reply), ANY).thought
    return document.thought if document.kind == "step" and document.actions else None


def _context(instruction: str, turns: Sequence[PastStep], screen: Observation) -> Context:
    return Context(instruction, tuple(turns), screen, 0)


def _before(steps: int, screens: Sequence[Observation]) -> list[Observation]:
    """Lists the screens of past steps; a screen that the prompt no longer shows is replaced by the oldest shown
    screen."""
    return [screens[0]] * (steps + 1 - len(screens)) + list(screens[:-1][-steps:] if steps else ())


def _read(rollout: Rollout, family: ModelFamily, screens: Sequence[Observation]) -> list[PastStep]:
    """Reads the rollout's past replies into past steps."""
    before = _before(len(rollout.past_replies), screens)
    read = [
        family.read(Completion(text), (screen.width, screen.height))
        for text, screen in zip(rollout.past_replies, before, strict=True)
    ]
    errors = rollout.past_errors or ("",) * len(read)
    return [
        PastStep(reply.thought, reply.action_text, screen, error, reply.text)
        for reply, screen, error in zip(read, before, errors, strict=True)
    ]


def _question(
    sample: TrainSample, family: ModelFamily, screens: Sequence[Observation], seed: int
) -> tuple[list[Message], str]:
    """Builds the question of continual training about screens, and its answer, without instruction and history."""
    size = (screens[-1].width, screens[-1].height)
    if sample.kind == "transition":
        return family.question(WHAT_CHANGED, screens), sample.thought
    if sample.kind == "perception":
        return family.question(question_text(sample, lambda click: family.write(click, size)), screens), sample.thought
    if sample.kind == "video":
        sizes = [(screen.width, screen.height) for screen in screens]
        return video_question(sample.instruction, clip_of_sample(sample, sizes)), sample.thought
    if sample.kind == "naming":
        asked = _drawn(sample, seed)
        place = family.write(Click(x=asked.x, y=asked.y), size)
        return family.question(f"What is at the place of {place}?", screens), asked.name
    done = family.reply("", from_json_list(sample.actions), size)
    return family.question(WHAT_WAS_DONE, screens, acts=True), done


def clip_of_sample(sample: TrainSample, sizes: Sequence[Size]) -> Clip:
    """Makes the video of a sample; `sizes` are those of its screenshots.

    Raises:
        FlywheelError: the screenshots have several sizes.
    """
    if len(set(sizes)) > 1:
        listed = " and ".join(f"{width} x {height}" for width, height in sorted(set(sizes))[:2])
        raise FlywheelError(
            f"video sample of {sample.task_id}: screenshots of {listed} pixels.", "A video has one size; leave it out."
        )
    return clip_of(sizes[0], sample.seconds, sample.rate)


def question_text(sample: TrainSample, write: Callable[[Action], str]) -> str:
    """Writes the question of a perception sample with its place in the notation of `write`."""
    if sample.asked_at is None:
        return sample.instruction
    return sample.instruction.replace(PLACE, write(from_json(sample.asked_at)))


def _drawn(sample: TrainSample, seed: int) -> Question:
    """Draws one of the sample's questions, the same in every run of the job."""
    if not sample.questions:
        raise FlywheelError(
            f"sample of {sample.task_id}: neither an action nor a question.", "Give it one or leave it out."
        )
    return random.Random(f"{seed} {sample.screenshots[-1]}").choice(sample.questions)
