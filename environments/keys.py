"""What policies call the keys of a keyboard: several names for some, and one for each in the end."""

_ALIASES = {
    "return": "enter", "esc": "escape", "del": "delete", "control": "ctrl", "option": "alt", "cmd": "meta",
    "command": "meta", "win": "meta", "super": "meta", "up": "arrowup", "down": "arrowdown", "left": "arrowleft",
    "right": "arrowright", "page_up": "pageup", "page_down": "pagedown",
}  # fmt: skip


def usual(name: str) -> str:
    """The one name that a key has here; a name that no keyboard has stays as it is, in lower case."""
    return _ALIASES.get(name.lower(), name.lower())
