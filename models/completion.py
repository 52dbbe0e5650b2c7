"""Defines the completion: a model's reply and the actions read from it, from the model to the lake."""

from dataclasses import dataclass

from schemas.action import Action

MAX_ACTIONS = 32
"""Maximum actions of a reply that are performed (the limit of UI-Venus-2's `Sequence`)."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply. A model gives the text, its tokens and errors; a model family reads thought and action from it."""

    text: str
    token_ids: tuple[int, ...] = ()
    """Tokens of the reply, including its end token; empty if unknown."""
    logprobs: tuple[float, ...] = ()
    """Log probabilities with which the tokens were sampled; empty if unknown."""
    prompt_ids: tuple[int, ...] = ()
    """Tokens of the prompt as the model read them, pictures included; empty if unknown."""
    failure: str = ""
    """Reason why a reply is missing without a fault of the model; all other fields are then empty."""
    cut: bool = False
    """Whether the reply was cut at its limit of tokens."""
    version: str = ""
    """Policy version that generated the reply; empty for the version of the policy that was asked."""
    actor: str = ""
    """Kind of the actor, if it differs from the policy that was asked: `person` for a person's replacement."""
    thought: str = ""
    action_text: str = ""
    """Text of the actions, as the model wrote it."""
    actions: tuple[Action, ...] = ()
    """The actions to perform, in order; empty if the text holds none, with the reason in `error`."""
    error: str | None = None
    dropped: tuple[Action, ...] = ()
    """Later actions in the text that are not performed, because the model's format has one call a reply."""
    unused: tuple[str, ...] = ()
    """Arguments of the first call for which no action has a field, each as `name=value`; they have no effect."""
    family: str = ""
    """Model family that read the reply; empty for an actor that is no model."""

    @property
    def first(self) -> Action | None:
        """Returns the first action; None if the text holds none."""
        return self.actions[0] if self.actions else None
