"""Parse the keys that an action presses; an unknown key is the policy's failure."""

from schemas.failure import ActionFailure
from schemas.keyboard import Key, chord, key_named


def keys_of(expression: str) -> list[Key]:
    """Returns the keys of a hotkey, in the order of their presses; raises ActionFailure for an unknown key."""
    try:
        return chord(expression)
    except ValueError as error:
        raise ActionFailure(str(error)) from error


def key_of(name: str) -> Key:
    """Returns the key of a press or a release; raises ActionFailure for an unknown key."""
    try:
        return key_named(name)
    except ValueError as error:
        raise ActionFailure(str(error)) from error
