"""A model family: the prompts, actions and coordinates that a checkpoint was trained with.

Acting and training use the same family, so that a policy is trained on its own prompts and in its own notation.
Demonstrations, preferences and corrections come from no policy of the family. They are stored as typed actions, or as
text in thousandths of the screen, and the family writes them for training. A custom family overrides `write` and
`read_answer`. It also overrides `messages` and `reply` if its prompts and replies differ from `Thought: ...` and
`Action: ...`.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from common.text import counted
from models.completion import MAX_ACTIONS, Completion
from models.families.dialects import DIALECTS, format_action, format_reply, parse_reply, with_reading
from models.families.outside import SELECTOR, marked, marked_action, names_in, unmarked
from models.families.prompt import (
    COLLAPSED,
    SAMPLES,
    TOOL_SAMPLES,
    Message,
    messages_of,
    question_of,
    steps_of,
    system_text,
)
from models.families.reading import ParsedReply, read_text
from models.families.screen import CoordinateSpace, ImageLimits, Size, Unit
from models.families.thinking import opened, read_reply, split_reply
from models.families.video import VideoRule
from models.policy import Context
from models.tiny.tokens import GRID
from schemas.action import Action, UseTool, texts_of
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from schemas.refusal import Refusal

QWEN25 = ImageLimits(28, 3136, 12845056)
"""Limits of the published Qwen2.5-VL checkpoints (their preprocessor_config.json)."""
_ANY: Size = (1000, 1000)


class ModelFamily:
    """A family with coordinates in thousandths of the screen and the prompts of `models.families.prompt`.

    Args:
        config: the dialect, and which screens are shown.
    """

    grid: int = 1
    """Units between coordinates that differ."""
    counts: Unit = "thousandths"
    """Unit of its coordinates."""
    unit = "thousandths of the screen"
    """Unit as the prompt names it."""
    limits: ImageLimits | None = None
    """Limits of the checkpoint's image processor; None for a processor without limits, or without a checkpoint."""
    video: VideoRule | None = None
    """How the checkpoint's processor samples a video; None for models that take no video, or without a checkpoint."""
    published: ClassVar[ImageLimits | None] = None
    """Limits of the published checkpoint's processor, used to read a reply without a checkpoint. Acting and training
    never use them."""
    name: str = ""
    """Name that its replies are recorded under: its own or its dotted path."""
    templates: tuple[str, ...] = ("computer", "hybrid")
    """Values of `policy.template` for which the family has prompts."""
    own_dialect: str = ""
    """The family's only dialect; empty if `policy.dialect` selects one."""
    dialects: tuple[str, ...] = DIALECTS
    """Values of `policy.dialect` that the family accepts."""
    asks_without: bool = True
    """Whether the family has prompts for an action without a thought."""
    shows_past: bool = True
    """Whether prompts can contain screens of past steps."""
    folds: bool = True
    """Whether prompts follow `rule` and keep their beginning from step to step, as `policy.context=fold` needs; a class
    with `messages` of its own that does not set it cannot fold."""
    collapsed: str = COLLAPSED
    """Text that replaces a folded screen; empty for none."""
    max_new_tokens: int = 256
    """Limit of a reply's tokens, where `policy.max_new_tokens` is not set."""
    template_tokens: ClassVar[Mapping[str, int]] = {}
    """Limits of a reply's tokens by template, where they differ from `max_new_tokens`."""
    tokens: frozenset[str] = frozenset()
    """The checkpoint's added tokens (`models.families.outside`), which texts from outside may hold; empty where no
    checkpoint was given."""

    tooled: tuple[str, ...] = ()
    """Templates whose prompts may list functions of the environment (`policy.tools`)."""
    functions_of_its_own: tuple[str, ...] = ()
    """Names of functions that the family's own prompts list."""
    several: tuple[str, ...] = ("computer", "hybrid")
    """Templates under which a reply may have several calls. They are performed in order, at most `MAX_ACTIONS`."""
    joint = "\n\n"
    """Text between two written calls of a reply."""

    def __init__(self, config: PolicyConfig) -> None:
        self._refuse_unused(config)
        self.template: str = config.template
        self.dialect: str = self.own_dialect or config.dialect
        self.rule = config.context_rule
        """Rule for the screens of a prompt."""
        self.tools = tuple(config.tools)
        self._history_turns, self._older = config.history_turns, config.older
        self.thinks = config.thoughts

    @property
    def _registered(self) -> str:
        """The name in `policy.family`, or else of the class; needed for messages before `name` is set."""
        from models.families.registry import FAMILIES

        found = (name for name in FAMILIES.names if FAMILIES.class_of(name) is type(self))
        return next(found, type(self).__name__)

    @classmethod
    def reply_tokens(cls, template: str) -> int:
        """Returns the maximum tokens of a reply under a template, where `policy.max_new_tokens` is not set."""
        return cls.template_tokens.get(template, cls.max_new_tokens)

    def _refuse_unused(self, config: PolicyConfig) -> None:
        """Raises UsageError for an option that this family does not have."""
        name = config.family if config.family != "auto" else self._registered
        if config.context == "fold" and (why := self._never_folds()):
            raise UsageError(f"`policy.context` is fold, and {name} {why}.", "Set it to slide.")
        if config.history_images != 1 and not self.shows_past:
            raise UsageError(
                f"`policy.history_images` is {config.history_images}, but {name} sees only the current screen.",
                "Set it to 1.",
            )
        if config.tools and config.template not in self.tooled:
            raise UsageError(
                f"`policy.tools` lists {counted(len(config.tools), 'function')}, and the prompt of {name} for "
                f"`policy.template` {config.template} has no place for them.",
                "Remove `policy.tools`, or take another `policy.family`.",
            )
        if taken := [tool.name for tool in config.tools if tool.name in self.functions_of_its_own]:
            raise UsageError(
                f"`policy.tools` lists {taken[0]}, which is a function of {name} itself.", "Rename or remove it."
            )
        for key, asked, known in (
            ("template", config.template, self.templates),
            ("dialect", config.dialect, self.dialects),
            ("thoughts", config.thoughts, (True, False) if self.asks_without else (True,)),
        ):
            if asked not in known:
                listed = " and ".join(str(one).lower() if isinstance(one, bool) else str(one) for one in known)
                raise UsageError(
                    f"`policy.{key}` is {str(asked).lower() if isinstance(asked, bool) else asked}, and the family "
                    f"{name} has {listed} only.",
                    f"Set it to {str(known[0]).lower() if isinstance(known[0], bool) else known[0]}, or name another "
                    "`policy.family`.",
                )

    def _never_folds(self) -> str:
        """Returns why prompts of this family cannot fold; empty if they can."""
        if not self.shows_past:
            return "shows one screen only"
        stated = next(one for one in type(self).__mro__ if "messages" in vars(one) or "folds" in vars(one))
        if "folds" not in vars(stated):
            return "has prompts of its own without a value of `folds`"
        return "" if self.folds else "changes the beginning of its prompt at each step"

    def fit(self, limits: ImageLimits | None) -> None:
        """Stores the limits of the checkpoint's image processor, which decide the size of screens.

        Raises:
            UsageError: the family writes pixels and the processor has no limits, so the size of a pixel is unknown.
        """
        if self.counts == "pixels" and limits is None:
            raise UsageError(
                "`policy.family` writes pixels of the picture that the checkpoint is shown, and its image processor "
                "has no size of that picture (patch_size, merge_size and an area in size.shortest_edge and "
                "size.longest_edge).",
                "Name a family that writes thousandths, or a checkpoint with such a processor.",
            )
        self.limits = limits

    def video_rule(self) -> VideoRule:
        """Returns how the checkpoint's processor samples a video.

        Raises:
            UsageError: the checkpoint's model takes no video.
        """
        if self.video is None:
            raise UsageError(
                f"`train.video`: the models of `policy.family` {self.name or self._registered} take no video.",
                "Set train.video to 0, or train a Qwen2.5-VL, Qwen3-VL or Qwen3.5 (policy.base).",
            )
        return self.video

    def sides(self, screen: Size) -> tuple[float, float]:
        """Computes a screen's width and height in units of its coordinates."""
        return CoordinateSpace(self.counts, self.limits).sides(screen)

    def chat(self, context: Context) -> list[Message]:
        """Builds the chat for a policy: `messages` of the last `policy.history_turns` turns.

        Texts from outside are marked, so that every tokenizer of this project reads them as text
        (`models.families.outside`).
        """
        context = self._marked(context)
        left_out = max(0, len(context.turns) - (self._history_turns or len(context.turns)))
        if not left_out:
            return self.messages(context)
        note = self._omission_note(context.turns[:left_out])
        return self.messages(
            replace(context, instruction=f"{context.instruction}\n{note}", turns=context.turns[left_out:])
        )

    def _marked(self, context: Context) -> Context:
        """Marks the instruction and each past turn, except for the family's own markup in the turns."""
        turns = [
            replace(
                turn,
                thought=self._mark(turn.thought),
                action_text=self._marked_action_text(turn.action_text),
                error=self._mark(turn.error),
                reply=self.marked_reply(turn.reply) if turn.reply else "",
            )
            for turn in context.turns
        ]
        return replace(context, instruction=self._mark(context.instruction), turns=tuple(turns))

    def _mark(self, text: str) -> str:
        return marked(text, tokens=self.tokens)

    @cached_property
    def markup(self) -> frozenset[str]:
        """Lists the texts in the form of a token that the family itself writes, such as `<tool_call>`."""
        found = set[str]()
        called = [
            UseTool(name=one.name, arguments=dict.fromkeys(one.parameters.get("properties", ()), "?"))
            for one in self.tools
        ]
        for action in (*SAMPLES, *TOOL_SAMPLES, *called):
            with suppress(UsageError):  # the template has no such action
                found |= names_in(self.reply("?", [action], _ANY), self.tokens)
        return frozenset(found)

    def marked_reply(self, reply: str) -> str:
        """Marks a reply, except for the family's own markup.

        Text within a thought or an action's fields is marked even if it looks like the family's markup. A reply that
        the family writes itself is marked as a reply to imitate: a token may begin in its label and end in its thought.
        """
        if not names_in(reply, self.tokens):
            return reply
        read = self.read(Completion(reply), _ANY)
        if read.actions and not read.dropped:
            with suppress(UsageError):
                if self.reply(read.thought, read.actions, _ANY) == reply:
                    return self.taught(read.thought, read.actions, _ANY)
        at = reply.rfind(read.action_text) if read.action_text else len(reply)
        before, answer = reply[:at], reply[at:]
        if read.thought:
            before = before.replace(read.thought, self._mark(read.thought), 1)
        if read.action_text:
            answer = answer.replace(read.action_text, self._marked_action_text(read.action_text), 1)
        whole, end = marked(before + answer, self.markup, self.tokens), len(unmarked(before))
        places = [place for place, character in enumerate(whole) if character != SELECTOR]
        end = places[end] if end < len(places) else len(whole)
        return whole if SELECTOR in reply else opened(whole[:end]) + whole[end:]

    def _marked_action_text(self, text: str) -> str:
        """Marks an action's text, except for the family's markup outside of the fields."""
        if not names_in(text, self.tokens):
            return text
        read = self.read(Completion(text), _ANY)
        plain = [marked_action(action, self.tokens) for action in read.actions]
        if read.actions and plain[0] is not read.actions[0]:
            with suppress(UsageError):
                if self.write_actions(read.actions, _ANY) == text:
                    return marked(self.write_actions(plain, _ANY), self.markup, self.tokens)
        for one in (*read.actions, *read.dropped)[1:]:
            for field in texts_of(one):
                if names_in(field, self.tokens):
                    for literal in (json.dumps(field, ensure_ascii=False), json.dumps(field), repr(field)):
                        text = text.replace(literal, self._mark(literal))
        return marked(text, self.markup, self.tokens)

    def _omission_note(self, turns: Sequence[PastStep]) -> str:
        """Writes a note about the turns that are left out."""
        note = f"{counted(len(turns), 'earlier step')} {'is' if len(turns) == 1 else 'are'} not shown"
        if self._older == "summarised":
            read = [
                self.read(Completion(turn.action_text), (turn.observation.width, turn.observation.height)).first
                for turn in turns
            ]
            kinds = Counter(action.type if action is not None else "no action" for action in read)
            note += f": {', '.join(f'{kind} {count}' for kind, count in kinds.most_common())}"
        return f"({note}.)"

    def messages(self, context: Context) -> list[Message]:
        """Builds the chat with exactly these turns."""
        screen = context.observation
        system = self._system((screen.width, screen.height), context.thinks)
        return messages_of(context, self.rule, system, self.limits, self.collapsed)

    def steps(
        self, context: Context, reply: Callable[[PastStep], str], result: Callable[[PastStep], str] | None = None
    ) -> list[Message]:
        """Builds the turns behind the instruction: step by step a screen and the reply to it, then the current
        screen. `result` writes the result of a reply's call, if the prompt has it."""
        return steps_of(context, self.rule, reply, self.limits, self.collapsed, result)

    def sampled(self, turn: PastStep) -> tuple[str, str] | None:
        """Splits the reply of a past step, as it was sampled, into thinking and answer.

        Returns:
            The thinking without its tags, and the answer. None if the reply is unknown or has no action in this
            family's notation; the prompt then has the thought and the action in the family's usual form.
        """
        action = unmarked(turn.action_text)
        if not action or action not in unmarked(turn.reply):
            return None
        size = turn.observation.width, turn.observation.height
        return split_reply(turn.reply, lambda answer: self.read_answer(answer, size))

    def refused_tool(self, turn: PastStep) -> str:
        """Returns the reason why a function of the environment refused the call of a past step; empty if none did."""
        if not (self.tools and turn.error):
            return ""
        size = turn.observation.width, turn.observation.height
        actions = self.read(Completion(unmarked(turn.action_text)), size).actions
        number = Refusal.of(unmarked(turn.error), len(actions)).number
        return turn.error if any(isinstance(one, UseTool) for one in actions[number - 1 : number]) else ""

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds a chat that asks about screens outside of any trajectory; `acts` asks for an action instead of a
        text."""
        system = self._system((screens[-1].width, screens[-1].height)) if acts else ""
        return question_of(question, screens, system, self.limits)

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as the model would on a screen of this size."""
        return format_action(action, self.dialect, self.grid, self.sides(screen))

    def write_actions(self, actions: Sequence[Action], screen: Size) -> str:
        """Writes the actions of one reply as the model would on a screen of this size.

        Raises:
            UsageError: as `write`, or there are several actions, and the template has one call a reply.
        """
        if self.template not in self.several:
            return self.write(self.only(actions), screen)
        return self.joint.join(self.write(action, screen) for action in actions)

    def only(self, actions: Sequence[Action]) -> Action:
        """Returns the only action of a reply.

        Raises:
            UsageError: there are several actions, and the format of the family has one call a reply.
        """
        if len(actions) != 1:
            raise UsageError(
                f"{self.name or self._registered} writes one action a reply, and the step has {len(actions)}.",
                "Leave the step out, or take another `policy.family`.",
            )
        return actions[0]

    def read(self, completion: Completion, screen: Size) -> Completion:
        """Reads thought and actions of a completion; never raises for any text of a model.

        Thinking between tags is split off first (`models.families.thinking`), in every family. If the template allows
        one call a reply, the actions of the first call are performed, and those of further calls are dropped.
        """
        found = read_reply(completion.text, lambda answer: self.read_answer(answer, screen))
        if self.template in self.several:
            found = replace(found, parts=min(len(found.actions), MAX_ACTIONS))
        return with_reading(completion, found)

    def sentence(self, written: str) -> str:
        """Returns the sentence that describes a written action; empty if the grammar has no such sentence."""
        return ""

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads a reply without its thinking; the thought is all text before the action."""
        return read_text(answer, self.sides(screen))

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes a whole reply as the model would, without the thought if `config` asks for none."""
        return format_reply(thought if self.thinks else "", self.write_actions(actions, screen))

    def taught(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes a whole reply for training, with marked texts: only the family's own markup is read as tokens."""
        return self.reply(self._mark(thought), [marked_action(one, self.tokens) for one in actions], screen)

    def rewrite(self, reply: str, screen: Size) -> str:
        """Rewrites a reply stored as text in thousandths of the screen; a reply without an action is unchanged."""
        read = parse_reply(reply)
        actions = (*read.actions, *read.dropped)
        return self.taught(read.thought, actions, screen) if actions else reply

    def _system(self, screen: Size, thinks: bool = True) -> str:
        samples = (*SAMPLES, *TOOL_SAMPLES) if self.template == "hybrid" else SAMPLES
        return system_text([self.write(action, screen) for action in samples], self.unit, thinks)


class TinyFamily(ModelFamily):
    """The family of the small policy, whose coordinates are coarser and whose prompts have no system turn.

    Its network reads all screens before the text, so the place of a folded screen has no text.
    """

    folds = True
    collapsed = ""
    grid = GRID
    templates = ("computer",)
    max_new_tokens = 32

    def messages(self, context: Context) -> list[Message]:
        """Builds the chat as `ModelFamily.messages`, with the reply's beginning after the instruction."""
        return super().messages(replace(context, instruction=self.asked(context.instruction, context.thinks)))

    @staticmethod
    def asked(instruction: str, thinks: bool) -> str:
        """Returns the instruction in the prompt's form; without a thought, the prompt ends with the reply's
        beginning."""
        return instruction if thinks else f"{instruction}\n{format_reply('', '')}"


class PixelFamily(ModelFamily):
    """A family with coordinates in pixels of the picture that the checkpoint's image processor makes of the screen."""

    counts = "pixels"
    unit = "pixels"
    published = QWEN25
