"""Thinks with a model: the champion, or a model behind any OpenAI-compatible server.

The prompt shows the recorded action (ActRe) or hides it. This module builds the prompts and reads the answers.

The paper names five patterns of reasoning and publishes no prompt. This module's prompt names the patterns, and asks
which of them the thought uses.
"""

import hashlib
import re
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import Field

from models.completion import Completion
from models.families.dialects import format_action, format_actions, format_reply, read_completion
from models.families.outside import marked_chat
from models.families.prompt import SAMPLES, Message, messages_of, system_text
from models.policy import Context
from models.serving.openai import Endpoint, NoAnswer, OpenAIClient, RepeatedEndpointOptions
from models.serving.server import wire_message
from models.thinkers.thinker import Thinker, ThinkerCase, ThinkerResources, ThinkerThought
from schemas.action import Action
from schemas.config.section import Count, Positive, Section
from schemas.context import ContextRule
from schemas.failure import UsageError
from schemas.observation import Observation
from schemas.tables.annotation import PATTERNS, Pattern

MEANING: dict[Pattern, str] = {
    "task_decomposition": "split the task into parts",
    "long_term_consistency": "recall the goal and what of it is left",
    "milestone_recognition": "notice that a part is done",
    "trial_and_error": "try what the task does not name, and say why it may help",
    "reflection": "notice that something went wrong or changed nothing, and draw a conclusion",
}
_PATTERNS = re.compile(r"^[ \t*]*Patterns?[ \t*]*:(.*)$", re.IGNORECASE | re.MULTILINE)
_THOUGHT = re.compile(r"^[ \t*]*Thought[ \t*]*:", re.IGNORECASE | re.MULTILINE)


def rules_of(language: str) -> str:
    """Writes the system turn of the task."""
    listed = "\n".join(f"{name.replace('_', ' ')}: {meaning}" for name, meaning in MEANING.items())
    return (
        "You write down what an expert user of a graphical interface thinks before each action. You get the "
        "instruction, what was thought and done so far, the screenshot, and the action that comes next. Write the "
        f"thought that leads to it, as it was before acting: one to three sentences in {language}, first person. Say "
        "what of the task is done and left, which element it is, and why. Use what fits of these patterns:\n"
        f"{listed}\n"
        "Write no coordinates, do not repeat the action, and do not say that it was given. Answer in two lines:\n"
        "Patterns: those used, with commas, or none\nThought: ..."
    )


def chat_about(case: ThinkerCase, language: str, rule: ContextRule) -> list[Message]:
    """Builds the chat that asks for the thought of a known action.

    Args:
        case: the step.
        language: language of the thought.
        rule: the screens that are pictures.
    """
    turns, shown = case.context.turns, rule.folded(len(case.context.turns) + 1)
    parts = [_text(f"Instruction: {case.context.instruction}")]
    for number, turn in enumerate(turns):
        if number >= shown:
            parts.append(_picture(turn.observation))
        parts.append(_text(f"Step {number}:\n{format_reply(turn.thought, turn.action_text)}"))
    unchanged = " The last action changed nothing on it." if case.unchanged else ""
    parts += [
        _text(f"The screen now:{unchanged}"),
        _picture(case.context.observation),
        _text(f"The next action (coordinates are thousandths of the screen): {format_action(case.action)}"),
    ]
    return [{"role": "system", "content": [_text(rules_of(language))]}, {"role": "user", "content": parts}]


def thought_in(text: str, tokens: int = 0) -> ThinkerThought:
    """Reads an answer's thought and the patterns that it names; an answer of another form is entirely thought."""
    named = _PATTERNS.search(text)
    rest = text[: named.start()] + text[named.end() :] if named else text
    found = _THOUGHT.search(rest)
    thought = (rest[found.end() :] if found else rest).strip()
    return ThinkerThought(thought, _named(named.group(1)) if named else (), tokens=tokens)


def _named(listed: str) -> tuple[Pattern, ...]:
    words = re.sub(r"[^a-z]+", "_", listed.lower())
    return tuple(pattern for pattern in PATTERNS if pattern in words)


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def _picture(observation: Observation) -> dict[str, object]:
    return {"type": "image", "observation": observation}


class AskedOptions(Section):
    """Prompt options of every thinker that asks a model."""

    hidden: bool = False
    """Hide the action from the model: thought bootstrapping. If false, ActRe."""
    temperature: Positive = 1.0
    """Sampling temperature of the answers, so that tries differ."""
    max_tokens: Count = 256
    """Maximum tokens of an answer."""
    language: str = Field("English", min_length=1)
    """Language of thoughts that explain an action."""


class ThinkerPolicyOptions(AskedOptions):
    """`think.options.policy`."""

    hidden: bool = True


class ThinkerEndpointOptions(AskedOptions, RepeatedEndpointOptions):
    """`think.options.endpoint`."""

    key_variable: str = "FLYWHEEL_THINKER_KEY"
    concurrency: Count = 8
    """Maximum concurrent requests."""
    history_images: Count = 3
    """Number of latest screenshots in the prompt."""


Asked = TypeVar("Asked", bound=AskedOptions)


class AskedThinker(Thinker[Asked]):
    """Asks a model, in batches or with several requests at once."""

    asks_model = True
    sees = True

    def __init__(self, options: Asked, resources: ThinkerResources) -> None:
        super().__init__(options, resources)
        self.hidden = options.hidden
        self.author = "bootstrap" if options.hidden else "actre"

    def think(self, cases: Sequence[ThinkerCase], draw: int) -> list[ThinkerThought]:
        """Samples the model's thoughts."""
        cases = [replace(case, context=_redrawn(case.context, draw)) for case in cases]
        together = self._together()
        if not together or len(cases) < 2:
            return self._thoughts(cases)
        with ThreadPoolExecutor(together) as threads:
            return [thought for made in threads.map(lambda case: self._thoughts([case]), cases) for thought in made]

    @abstractmethod
    def _together(self) -> int:
        """Returns the maximum number of concurrent requests, with one case each; 0 means batches."""

    @abstractmethod
    def _thoughts(self, cases: Sequence[ThinkerCase]) -> list[ThinkerThought]:
        """Writes the thoughts of one batch."""

    def _named(self, model: str) -> str:
        """Builds the version: the model, and a hash of the options that change its answers."""
        changed = self.options.model_dump_json(include={"temperature", "max_tokens", "language"}, exclude_defaults=True)
        asked = changed if self.hidden else f"{changed} {rules_of(self.options.language)}"
        return f"{model}@{hashlib.sha256(asked.encode()).hexdigest()[:6]}"


class PolicyThinker(AskedThinker[ThinkerPolicyOptions]):
    """The champion; if the action is hidden, its prompt is the one it acts with."""

    section = ThinkerPolicyOptions

    def __init__(self, options: ThinkerPolicyOptions, resources: ThinkerResources) -> None:
        from models.families.family import TinyFamily
        from models.vlm import VlmPolicy

        super().__init__(options, resources)
        policy = resources.champion()
        assert isinstance(policy, VlmPolicy)
        if not options.hidden and isinstance(policy.family, TinyFamily):
            raise UsageError(
                "`think.options.policy.hidden` is false: the small policy answers no question about an action.",
                "Leave it true, or explain actions with the thinker `rules` or `endpoint`.",
            )
        self._policy = policy
        self.version = self._named(policy.version)

    def write(self, actions: Sequence[Action], screen: tuple[int, int]) -> str:
        """Writes the actions of a past reply as the policy does."""
        return self._policy.family.write_actions(actions, screen) if self.hidden else format_actions(actions)

    def _together(self) -> int:
        return self._policy.max_concurrency

    def _thoughts(self, cases: Sequence[ThinkerCase]) -> list[ThinkerThought]:
        contexts, heat = [case.context for case in cases], self.options.temperature
        if self.hidden:
            return [_own(made) for made in self._policy.act(contexts, heat)]
        family = self._policy.family
        asked = [chat_about(case, self.options.language, family.rule) for case in cases]
        chats = [marked_chat(chat, family.tokens) for chat in asked]
        seeds = [context.seed for context in contexts]
        made = self._policy.model.generate(chats, seeds, heat, self.options.max_tokens)
        return [_explained(one) for one in made]


class EndpointThinker(AskedThinker[ThinkerEndpointOptions]):
    """A served model; actions and coordinates in thousandths of the screen."""

    section = ThinkerEndpointOptions

    def __init__(self, options: ThinkerEndpointOptions, resources: ThinkerResources) -> None:
        super().__init__(options, resources)
        self.version, self._client = self._named(options.model), _client(options)

    @classmethod
    def require(cls, options: ThinkerEndpointOptions) -> None:
        """Checks that the server answers and takes the key."""
        _client(options).require()

    def _together(self) -> int:
        return self.options.concurrency

    def _thoughts(self, cases: Sequence[ThinkerCase]) -> list[ThinkerThought]:
        return [self._thought(case) for case in cases]

    def _thought(self, case: ThinkerCase) -> ThinkerThought:
        shown = ContextRule(self.options.history_images)
        if self.hidden:
            system = system_text([format_action(action) for action in SAMPLES])
            chat = messages_of(case.context, shown, system)
        else:
            chat = chat_about(case, self.options.language, shown)
        try:
            answer = self._client.chat(self._body(chat, case.context.seed))
        except NoAnswer as failure:
            return ThinkerThought("", failure=str(failure))
        if not self.hidden:
            return thought_in(answer["text"], answer["tokens"])
        return replace(_own(read_completion(Completion(answer["text"]))), tokens=answer["tokens"])

    def _body(self, chat: Sequence[Message], seed: int) -> dict[str, Any]:
        return {
            "model": self.options.model,
            "messages": [wire_message(message) for message in chat],
            "temperature": self.options.temperature,
            "max_tokens": self.options.max_tokens,
            "seed": seed % 2**31,
        }


def _own(completion: Completion) -> ThinkerThought:
    """Returns the thought of a model that was asked to act."""
    if completion.failure:
        return ThinkerThought("", failure=completion.failure)
    return ThinkerThought(completion.thought, action=completion.first, tokens=len(completion.token_ids))


def _explained(completion: Completion) -> ThinkerThought:
    """Returns the thought of a model that was asked to explain."""
    if completion.failure:
        return ThinkerThought("", failure=completion.failure)
    return thought_in(completion.text, len(completion.token_ids))


def _redrawn(context: Context, draw: int) -> Context:
    return replace(context, seed=context.seed + 1_000_003 * draw)


def _client(options: ThinkerEndpointOptions) -> OpenAIClient:
    where = (options.url, options.key_variable, options.timeout_s, options.retries, options.concurrency)
    return OpenAIClient(Endpoint("think.options.endpoint", *where))
