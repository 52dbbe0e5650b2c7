"""Define the keys of a keyboard: one table of all their names, and one parser of key expressions.

Each key has one canonical name. The parser also accepts the names that policies, data sets and programs use. Each
environment and dialect looks up its own name of a key in the table. Characters are keys of a US keyboard. Any other
character is a key of its own.

Source: pyautogui 0.9.54 (`KEY_NAMES`), UI Events (`KeyboardEvent.key`, `.code`), Windows' virtual-key codes, and
keysymdef.h and XF86keysym.h of X11.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

MAX_KEYS = 3
"""Maximum number of keys in a hotkey."""
_UNICODE = 0x0100_0000
"""Offset from the code point of a character beyond Latin-1 to its keysym."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key and its names in each program.

    Attributes:
        name: canonical name, in lower case; for a character key, the character.
        pyautogui: name in pyautogui's `KEY_NAMES`; empty if it has none.
        key: the DOM's `KeyboardEvent.key`.
        code: the DOM's `KeyboardEvent.code`; empty if a US keyboard lacks the key.
        number: Windows virtual-key code; 0 if there is none.
        keysym: keysym of X11; 0 if there is none.
        shifted: the different character that the key writes with shift, if any.
    """

    name: str
    pyautogui: str
    key: str
    code: str
    number: int
    keysym: int
    shifted: str = ""

    @property
    def location(self) -> int:
        """The DOM's `KeyboardEvent.location`: 1 for left, 2 for right, 3 for the number pad, else 0."""
        if self.code.startswith("Numpad"):
            return 3
        if self.key in ("Shift", "Control", "Alt", "Meta"):
            return 2 if self.code.endswith("Right") else 1
        return 0


_ROWS = """
enter enter Enter Enter 13 ff0d | *return ⏎ ↵ ↩ ⌅
tab tab Tab Tab 9 ff09 | ⇥
escape esc Escape Escape 27 ff1b | *esc *escape ⎋
backspace backspace Backspace Backspace 8 ff08 | ⌫
delete delete Delete Delete 46 ffff | *del ⌦
insert insert Insert Insert 45 ff63 | ins
home home Home Home 36 ff50
end end End End 35 ff57
pageup pageup PageUp PageUp 33 ff55 | *pgup prior ⇞
pagedown pagedown PageDown PageDown 34 ff56 | *pgdn pgdown next ⇟
arrowleft left ArrowLeft ArrowLeft 37 ff51 | left leftarrow ←
arrowup up ArrowUp ArrowUp 38 ff52 | up uparrow ↑
arrowright right ArrowRight ArrowRight 39 ff53 | right rightarrow →
arrowdown down ArrowDown ArrowDown 40 ff54 | down downarrow ↓
shift shift Shift ShiftLeft 16 ffe1 | ⇧ *shiftleft
shiftright shiftright Shift ShiftRight 16 ffe2
ctrl ctrl Control ControlLeft 17 ffe3 | ⌃ control ctl controlormeta *ctrlleft
ctrlright ctrlright Control ControlRight 17 ffe4
alt alt Alt AltLeft 18 ffe9 | ⌥ *altleft *option *optionleft opt
altright altright Alt AltRight 18 ffea | *optionright
altgraph altright AltGraph AltGraph 225 fe03 | altgr isolevel3shift
meta win Meta MetaLeft 91 ffeb | ⌘ *winleft win windows super cmd *command
metaright winright Meta MetaRight 92 ffec | winright
apps apps ContextMenu ContextMenu 93 ff67 | contextmenu menu
capslock capslock CapsLock CapsLock 20 ffe5 | caps ⇪
numlock numlock NumLock NumLock 144 ff7f
scrolllock scrolllock ScrollLock ScrollLock 145 ff14
printscreen printscreen PrintScreen PrintScreen 44 ff61 | *print *prntscrn *prtsc *prtscr prtscn sysrq
pause pause Pause Pause 19 ff13 | break
clear clear Clear Numpad5 12 ff0b
help help Help Help 47 ff6a
select select Select Select 41 ff60
execute execute Execute Open 43 ff62
sleep sleep Standby Sleep 95 1008ff2f | standby
fn fn Fn Fn 0 100811d0
accept accept Accept - 30 0
convert convert Convert Convert 28 ff23 | henkan
nonconvert nonconvert NonConvert NonConvert 29 ff22 | muhenkan
modechange modechange ModeChange - 31 ff7e
final final FinalMode - 24 0 | finalmode
hangul hangul HangulMode Lang1 21 ff31 | *hanguel hangulmode
hanja hanja HanjaMode Lang2 25 ff34 | hanjamode
junja junja JunjaMode - 23 ff38 | junjamode
kana kana KanaMode KanaMode 21 ff2d | kanamode
kanji kanji KanjiMode - 25 ff21 | kanjimode
browserback browserback BrowserBack BrowserBack 166 1008ff26
browserforward browserforward BrowserForward BrowserForward 167 1008ff27
browserrefresh browserrefresh BrowserRefresh BrowserRefresh 168 1008ff29
browserstop browserstop BrowserStop BrowserStop 169 1008ff28
browsersearch browsersearch BrowserSearch BrowserSearch 170 1008ff1b
browserfavorites browserfavorites BrowserFavorites BrowserFavorites 171 1008ff30
browserhome browserhome BrowserHome BrowserHome 172 1008ff18
volumemute volumemute AudioVolumeMute AudioVolumeMute 173 1008ff12 | audiovolumemute audiomute mute
volumedown volumedown AudioVolumeDown AudioVolumeDown 174 1008ff11 | audiovolumedown audiolowervolume
volumeup volumeup AudioVolumeUp AudioVolumeUp 175 1008ff13 | audiovolumeup audioraisevolume
nexttrack nexttrack MediaTrackNext MediaTrackNext 176 1008ff17 | mediatracknext audionext
prevtrack prevtrack MediaTrackPrevious MediaTrackPrevious 177 1008ff16 | mediatrackprevious audioprev
stop stop MediaStop MediaStop 178 1008ff15 | mediastop audiostop
playpause playpause MediaPlayPause MediaPlayPause 179 1008ff14 | mediaplaypause audioplay
launchmail launchmail LaunchMail LaunchMail 180 1008ff19
launchmediaselect launchmediaselect LaunchMediaPlayer MediaSelect 181 1008ff32 | mediaselect launchmediaplayer
launchapp1 launchapp1 LaunchApplication1 LaunchApp1 182 1008ff40 | launchapplication1
launchapp2 launchapp2 LaunchApplication2 LaunchApp2 183 1008ff41 | launchapplication2
multiply multiply * NumpadMultiply 106 ffaa | numpadmultiply kpmultiply
add add + NumpadAdd 107 ffab | numpadadd kpadd
separator separator , NumpadComma 108 ffac | numpadcomma kpseparator
subtract subtract - NumpadSubtract 109 ffad | numpadsubtract kpsubtract
decimal decimal . NumpadDecimal 110 ffae | numpaddecimal kpdecimal
divide divide / NumpadDivide 111 ffaf | numpaddivide kpdivide
numpadenter enter Enter NumpadEnter 13 ff8d | kpenter
"""
"""Name, pyautogui's name, the DOM's key and code, virtual-key code, keysym (hexadecimal) | other names. `*` marks other
names that pyautogui has too."""
_PAIRS = (
    "`~ Backquote 192", "1! Digit1 49", "2@ Digit2 50", "3# Digit3 51", "4$ Digit4 52", "5% Digit5 53", "6^ Digit6 54",
    "7& Digit7 55", "8* Digit8 56", "9( Digit9 57", "0) Digit0 48", "-_ Minus 189", "=+ Equal 187",
    "[{ BracketLeft 219", "]} BracketRight 221", "\\| Backslash 220", ";: Semicolon 186", "'\" Quote 222",
    ",< Comma 188", ".> Period 190", "/? Slash 191",
    *(f"{letter}{letter.upper()} Key{letter.upper()} {ord(letter.upper())}" for letter in map(chr, range(97, 123))),
)  # fmt: skip
"""Character without shift, character with shift, the DOM's code, and virtual-key code."""
_WORDS = {
    "plus": "+", "minus": "-", "equal": "=", "comma": ",", "period": ".", "slash": "/", "backslash": "\\",
    "semicolon": ";", "colon": ":", "apostrophe": "'", "grave": "`", "backquote": "`", "underscore": "_",
    "asterisk": "*", "exclam": "!", "at": "@", "numbersign": "#", "dollar": "$", "percent": "%", "ampersand": "&",
    "bracketleft": "[", "bracketright": "]", "parenleft": "(", "parenright": ")", "braceleft": "{", "braceright": "}",
    "less": "<", "greater": ">", "question": "?", "bar": "|", "asciitilde": "~", "asciicircum": "^", "quotedbl": '"',
    "yen": "¥", "spacebar": "space",
}  # fmt: skip
"""Characters by their names in X11, in the DOM and in common use."""
BLANKS = {" ": "space", "\t": "tab", "\n": "enter", "\r": "enter"}
"""Keys by the blanks that they write."""


def _characters() -> Iterator[Key]:
    for pair in _PAIRS:
        written, code, number = pair.split()
        alone, shifted = written
        yield Key(alone, alone, alone, code, int(number), ord(alone), shifted)
        yield Key(shifted, shifted, shifted, code, int(number), ord(shifted))
    yield Key("space", "space", " ", "Space", 32, 0x20)
    yield Key("¥", "yen", "¥", "IntlYen", 0, 0xA5)


def _named() -> Iterator[tuple[Key, Sequence[str]]]:
    for row in _ROWS.strip().splitlines():
        columns, _, others = row.partition("|")
        name, pyautogui, key, code, number, keysym = columns.split()
        yield Key(name, pyautogui, key, code.strip("-"), int(number), int(keysym, 16)), others.split()
    for n in range(1, 25):
        yield Key(f"f{n}", f"f{n}", f"F{n}", f"F{n}", 111 + n, 0xFFBD + n), []
    for n in range(10):
        yield Key(f"num{n}", f"num{n}", str(n), f"Numpad{n}", 96 + n, 0xFFB0 + n), [f"numpad{n}", f"kp{n}"]


KEYS: dict[str, Key] = {key.name: key for key in (*_characters(), *(key for key, _ in _named()))}
"""Every key of the table, by its canonical name."""
_MODIFIERS = ("Shift", "Control", "Alt", "Meta")


def _sided() -> Iterator[tuple[str, str]]:
    """Yields the names of left and right modifiers, such as `right shift`, `Control_R` and `lctrl`."""
    for key, others in _named():
        if key.key in _MODIFIERS and key.location == 1:
            for name in (key.name, *(other.strip("*") for other in others if other.strip("*").isalpha())):
                for side, own in (("left", key.name), ("right", f"{key.name}right")):
                    for one in (side, side[0]):
                        yield from ((f"{one}{name}", own), (f"{name}{one}", own))


_ALIASES = {
    **{key.code.lower(): key.name for key in reversed(KEYS.values())},
    **dict(_sided()),
    **{other.strip("*"): key.name for key, others in _named() for other in others},
    **_WORDS,
}
"""Other names of keys: by position on the keyboard (`KeyA`), by side, and from the tables above."""
PYAUTOGUI = frozenset(key.pyautogui for key in KEYS.values()) | {
    other[1:] for _, others in _named() for other in others if other.startswith("*")
}
"""All names of keys in pyautogui."""
_SIGNS = {"+": "plus", "-": "minus"}
_MARKS = "".join(_SIGNS)
"""Separators between keys of an expression, in addition to blanks."""
_JOINT = re.compile(r"(?<=[^\s+])(?:\s*\+(?=[^\s+])|\s*\+\s+(?=\S)|\s+\+(?=\S))|(?<=[^\s+-])(?:\s*-\s+|\s+-)(?=\S)")
"""A separator between two keys: a plus with or without blanks around it, or a minus with a blank. The last sign of
`ctrl +`, `ctrl++` and `ctrl - -` is a key."""


def is_key(name: str) -> bool:
    """Checks whether a keyboard has a key of this name."""
    return _found(name) is not None


def key_named(name: str) -> Key:
    """Finds a key by any of its names.

    Raises:
        ValueError: no key has this name.
    """
    if (found := _found(name)) is None:
        raise ValueError(f"there is no key {name[:80]!r}")
    return found


def _found(name: str) -> Key | None:
    name = BLANKS.get(name, name)
    if len(name) == 1:
        code = ord(name)
        keysym = code if code < 0x100 else _UNICODE | code
        known = KEYS.get(_ALIASES.get(name, name))
        return known or (Key(name, "", name, "", 0, keysym) if name.isprintable() else None)
    plain = re.sub(r"(?<=.)[_-](?=.)", "", name.lower())
    return KEYS.get(plain) or KEYS.get(_ALIASES.get(plain, ""))


def is_modifier(name: str) -> bool:
    """Checks whether a name is the name of a modifier: shift, control, alt or meta, left or right."""
    return (key := _found(name)) is not None and key.key in _MODIFIERS


def names_of(expression: str) -> list[str]:
    """Lists the names of the keys in an expression.

    Accepted forms are `ctrl c`, `Ctrl + C`, `Ctrl - C`, `ctrl-shift-t`, `ctrl+page down`, `right shift-a`, `space bar`
    and `ctrl +`."""
    if expression in BLANKS:
        return [BLANKS[expression]]
    pieces = (piece.split() for piece in _JOINT.split(expression))
    return [name for words in pieces for name in _joined(one for word in words for one in _between(word))]


def _joined(words: Iterable[str]) -> list[str]:
    """Joins words that name one key together, such as `page down`, or `right shift`, whose words are also keys."""
    names: list[str] = []
    for word in words:
        if names and _is_one(names[-1], word):
            names[-1] += word
        else:
            names.append(word)
    return names


def _is_one(word: str, following: str) -> bool:
    together = word + following
    if not is_key(together):
        return False
    sided = word.lower() in ("left", "right") and is_modifier(following)
    return sided or together.lower() == "spacebar" or not (is_key(word) and is_key(following))


def _between(word: str) -> list[str]:
    """Lists the names within a word. A separator at its end is a key."""
    for mark in _MARKS:
        parts = re.split(rf"(?<=[^{mark}])[{mark}]", word)
        if len(parts) < 2 or not all(parts):
            continue
        if mark == "+":
            return [name for part in parts for name in _between(part)]
        names = _joined(parts)
        if len(names) > 1 and all(map(is_key, names)) and (is_modifier(names[0]) or not is_key(word)):
            return names
    return [word]


def together(names: Iterable[str]) -> str:
    """Returns the canonical hotkey of keys that are pressed together.

    A single capital letter is pressed with shift. In a shortcut, a capital letter is the key (`ctrl F` is `ctrl f`).

    Raises:
        ValueError: there are no names or too many, or a name is not the name of a key.
    """
    keys = [single(name) for name in names]
    if not keys:
        raise ValueError("a hotkey without a key")
    if len(keys) > MAX_KEYS:
        raise ValueError(f"{len(keys)} keys at once, and a hotkey has at most {MAX_KEYS}")
    if len(keys) == 1 and _is_capital(keys[0]):
        return f"shift {keys[0].lower()}"
    keys = [key.lower() if _is_capital(key) else key for key in keys]
    written = " ".join(keys)
    if names_of(written) == keys:
        return written
    *first, last = (key_named(key).name for key in keys)  # `right` and `shift` are two keys
    return " ".join([*(_SIGNS.get(key, key) for key in first), last])


def together_in(expressions: Iterable[str]) -> str:
    """Returns the canonical hotkey of a list of expressions that are pressed together.

    Raises:
        ValueError: as in `together`; or the list has several hotkeys, such as `ctrl+a` and then `delete`.
    """
    items = [names_of(one) or [one] for one in expressions]
    names = [name for item in items for name in item]
    if len(names) > len(items) > 1 and not all(map(is_modifier, names[:-1])):
        raise ValueError(f"not supported: several chords: {', '.join(map(' '.join, items))[:80]}")
    return together(names)


def single(name: str) -> str:
    """Returns the canonical name of one key: in lower case, except for a character.

    Raises:
        ValueError: the text is empty, has several names, or is not the name of a key.
    """
    names = names_of(name)
    if len(names) != 1:
        raise ValueError(f"{name[:80]!r} is not a key")
    key_named(names[0])
    return names[0].lower() if len(names[0]) > 1 else names[0]


def chord(expression: str) -> list[Key]:
    """Lists the keys of a canonical hotkey, in the order in which they are pressed.

    Raises:
        ValueError: a name is not the name of a key.
    """
    return [key_named(name) for name in together(names_of(expression)).split(" ")]


def pyautogui_name(name: str) -> str:
    """Returns pyautogui's name of a key; the name itself if pyautogui has it or if it is not the name of a key."""
    return name if name in PYAUTOGUI or not is_key(name) else key_named(name).pyautogui or name


def pyautogui_names(expression: str) -> list[str]:
    """Lists pyautogui's names of the keys in an expression."""
    return [pyautogui_name(name) for name in names_of(expression)]


def dom_names(expression: str) -> list[str]:
    """Lists the DOM's names of the keys in an expression, as browsers' tools take them; an unknown name stays."""
    found = (key_named(name) if is_key(name) else name for name in names_of(expression))
    return [one if isinstance(one, str) else one.code if one.key == " " else one.key for one in found]


def usual(expression: str) -> str:
    """Rewrites an expression with canonical names. An unknown name stays, in lower case."""
    names = (BLANKS.get(name, name) for name in names_of(expression))
    return " ".join(key_named(name).name if is_key(name) else name.lower() for name in names)


def _is_capital(key: str) -> bool:
    return len(key) == 1 and key.isupper() and len(key.lower()) == 1
