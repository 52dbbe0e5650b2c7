"""A completion: what a model generated and what was read in it; the one shape of a reply from the model to the lake."""

from dataclasses import dataclass

from schemas.action import Action


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply. A model gives the text, its tokens and what failed; a model family reads thought and action in it."""

    text: str
    token_ids: tuple[int, ...] = ()
    """Tokens of the reply, its end included; none where they are unknown."""
    logprobs: tuple[float, ...] = ()
    """Their log probabilities, as they were drawn; none where they are unknown."""
    prompt_ids: tuple[int, ...] = ()
    """Tokens of the prompt as whoever answered read them, pictures included; none where that is not known."""
    failure: str = ""
    """Why there is no reply, through no fault of the model; then the rest is empty."""
    cut: bool = False
    """Whether it ended at its limit of tokens, unfinished."""
    version: str = ""
    """The policy version that generated it; empty where that is the version of whoever was asked."""
    actor: str = ""
    """What chose it, where that is not the kind of whoever was asked: `person` for what a person put in its place."""
    thought: str = ""
    action_text: str = ""
    """The action as the model wrote it."""
    action: Action | None = None
    """The action, or None if the text held none; then `error` says why."""
    error: str | None = None
    further: tuple[Action, ...] = ()
    """Actions that stood in the text after that one."""
    parts: int = 1
    """How many of the actions, that one included, the first call stands for; these are performed, one a step."""
    unused: tuple[str, ...] = ()
    """Arguments of that call for which our actions have no field, each as `name=value`; they change nothing."""
    family: str = ""
    """The model family that read it; empty for whoever is no model."""
