"""A completion: a model's reply and the actions read from it; the same type from the model to the lake."""

from dataclasses import dataclass

from schemas.action import Action


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply. A model gives the text, its tokens and errors; a model family reads thought and action from it."""

    text: str
    token_ids: tuple[int, ...] = ()
    """Tokens of the reply, its end included; empty if unknown."""
    logprobs: tuple[float, ...] = ()
    """Log probabilities that the tokens were sampled with; empty if unknown."""
    prompt_ids: tuple[int, ...] = ()
    """Tokens of the prompt as the model read them, pictures included; empty if unknown."""
    failure: str = ""
    """Reason for a missing reply that is no fault of the model; all other fields are then empty."""
    cut: bool = False
    """Whether it ended at its limit of tokens, unfinished."""
    version: str = ""
    """Policy version that generated it; empty if it is the version of the policy that was asked."""
    actor: str = ""
    """Kind of the actor, if it differs from the policy that was asked: `person` for a person's replacement."""
    thought: str = ""
    action_text: str = ""
    """Text of the action, as the model wrote it."""
    action: Action | None = None
    """The action; None if the text held none, and `error` then holds the reason."""
    error: str | None = None
    further: tuple[Action, ...] = ()
    """Later actions in the text."""
    parts: int = 1
    """Number of actions, that one included, of the first call; these are performed, one per step."""
    unused: tuple[str, ...] = ()
    """Arguments of that call that no field of our actions holds, each as `name=value`; they change nothing."""
    family: str = ""
    """Model family that read it; empty for an actor that is no model."""
