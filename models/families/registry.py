"""Selects a checkpoint's family by `policy.family`, or else by its architecture."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from models.families.family import ModelFamily
from models.families.outside import tokens_of
from models.families.processor import read_limits, read_video_rule
from models.tiny.layout import is_tiny, read_config
from schemas.config.policy import PolicyConfig
from schemas.failure import CheckpointError, FlywheelError, UsageError
from schemas.registry import Registry

_HERE = "models.families"
FAMILIES = Registry(
    "policy.family",
    ModelFamily,
    {
        "tiny": f"{_HERE}.family:TinyFamily",
        "thousandths": f"{_HERE}.family:ModelFamily",
        "pixels": f"{_HERE}.family:PixelFamily",
        "ui-tars-1.0": f"{_HERE}.ui_tars:UiTars10Family",
        "ui-tars-1.5": f"{_HERE}.ui_tars:UiTars15Family",
        "doubao": f"{_HERE}.ui_tars:DoubaoFamily",
        "ui-tars-2": f"{_HERE}.ui_tars:UiTars2Family",
        "qwen2.5-vl": f"{_HERE}.qwen:Qwen25Family",
        "qwen3-vl": f"{_HERE}.qwen:Qwen3Family",
        "qwen3.5": f"{_HERE}.qwen35:Qwen35Family",
        "qwen3.6": f"{_HERE}.qwen35:Qwen36Family",
        "qwen3.8": f"{_HERE}.qwen35:Qwen38Family",
        "fara-7b": f"{_HERE}.fara:Fara7Family",
        "fara-1.5": f"{_HERE}.fara:Fara15Family",
        "gui-owl-1.5": f"{_HERE}.qwen:GuiOwlFamily",
        "step-gui": f"{_HERE}.step_gui:StepGuiFamily",
        "evocua": f"{_HERE}.qwen:EvoCuaFamily",
        "openwebrl": f"{_HERE}.openwebrl:OpenWebRlFamily",
        "mai-ui": f"{_HERE}.mai_ui:MaiUiFamily",
        "opencua": f"{_HERE}.opencua:OpenCuaFamily",
        "opencua-qwen2": f"{_HERE}.opencua:OpenCuaQwen2Family",
        "holo-1.5": f"{_HERE}.holo:HoloFamily",
        "holo-2": f"{_HERE}.holo:Holo2Family",
        "holo-3": f"{_HERE}.holo_3:Holo3Family",
        "glm": f"{_HERE}.glm:GlmFamily",
        "internvl": f"{_HERE}.internvl:InternVlFamily",
        "scalecua": f"{_HERE}.scalecua:ScaleCuaFamily",
        "scalecua-internvl": f"{_HERE}.scalecua:ScaleCuaInternFamily",
        "ui-venus-2": f"{_HERE}.ui_venus:UiVenus2Family",
    },
)
"""Families by name; each is built from `policy.*`."""
BY_MODEL_TYPE = {
    "qwen2_vl": "ui-tars-1.0",
    "qwen2_5_vl": "qwen2.5-vl",
    "qwen3_vl": "qwen3-vl",
    "qwen3_vl_moe": "qwen3-vl",
    "qwen3_5": "qwen3.5",
    "qwen3_5_moe": "qwen3.5",
    "glm4v": "glm",
    "glm4v_moe": "glm",
    "glm46v": "glm",
    "internvl": "internvl",
    "internvl_chat": "internvl",
}
"""Families by the `model_type` of a checkpoint's `config.json`, for the value auto of `policy.family`.

Other types are refused. A checkpoint of these types with another model's name is refused, too: UI-TARS 1.5, EvoCUA,
MAI-UI, OpenCUA, OpenWebRL, Holo, ScaleCUA, Fara, GUI-Owl, Step-GUI and UI-Venus share Qwen's types, so `policy.family`
must name their family.
"""
PLAIN = {"qwen2_5_vl": "pixels", "qwen3_vl": "thousandths", "qwen3_vl_moe": "thousandths"}
"""Families by `model_type` for a checkpoint that was not trained on its architecture's own grammar."""
VERSIONS = (("reasoning_effort", "qwen3.8"), ("preserve_thinking", "qwen3.6"), ("<function=", "qwen3.5"))
"""Families of the types `qwen3_5` and `qwen3_5_moe` by a text that only their chat templates have, newest first. A
checkpoint without such a chat template was not trained on calls as XML."""
NAMED_VERSIONS = {"qwen3.5": "qwen3.5", "qwen3.6": "qwen3.6", "qwen3.7": "qwen3.6", "qwen3.8": "qwen3.8"}
"""Families of these types by the version in a checkpoint's name; `auto` refuses one that its template contradicts."""
QWEN_CUA = "qwen-cua", "qwen3.6"
"""Name of Qwen-CUA, and its family; its chat template may be that of the checkpoint it was trained from."""
TAUGHT = "<tool_call>"
"""Token of every published Qwen2.5-VL and Qwen3-VL, and of all models that were trained from them."""


_NAMED = [name for name in FAMILIES.names if name != "tiny"]
_OWNERS = {
    **{"ui-tars-1.0": "ui-tars", "qwen2.5-vl": "qwen", "qwen3-vl": "qwen", "qwen3.5": "qwen"},
    **{"glm": "glm", "internvl": "internvl"},
}
"""Part that the names of each family's published checkpoints have in common."""
_TRAINED = (
    *("ui-tars", "doubao", "open-cua", "scale-cua", "evo-cua", "holo", "fara", "auto-glm", "cog-agent", "gui-owl"),
    *("mobile-agent", "mai-ui", "ui-venus", "infi-gui", "gui-actor", "gui-g1", "gui-g2", "gui-r1", "ui-r1", "ui-s1"),
    *("ui-ins", "se-gui", "dart-gui", "step-gui", "tong-ui", "gta1", "jedi", "aguvis", "show-ui", "os-atlas"),
    *("os-genesis", "u-ground", "see-click", "ferret-ui", "agent-cpm", "computer-rl", "mobile-rl", "arpo"),
    *("phi-ground", "ground-next", "molmo-web", "zero-gui", "ui-agile", "aria-ui", "ui-tron", "gui-eyes"),
    *("open-web-rl", "gelab-zero", "qwen-ui-agent", "cua-gym"),
)
"""Names of models that were trained from these checkpoints on a different grammar."""
_FAMILIES_OF: Mapping[str, tuple[str, ...]] = {
    "ui-tars": ("ui-tars-1.5", "ui-tars-1.0", "ui-tars-2"), "doubao": ("doubao",), "evo-cua": ("evocua",),
    "open-cua": ("opencua", "opencua-qwen2"), "scale-cua": ("scalecua", "scalecua-internvl"),
    "holo": ("holo-3", "holo-2", "holo-1.5"), "fara": ("fara-1.5", "fara-7b"), "auto-glm": ("glm",),
    "gui-owl": ("gui-owl-1.5",), "mobile-agent": ("gui-owl-1.5",), "mai-ui": ("mai-ui",), "ui-venus": ("ui-venus-2",),
    "step-gui": ("step-gui",), "gelab-zero": ("step-gui",), "open-web-rl": ("openwebrl",), "cua-gym": ("qwen3.5",),
}  # fmt: skip
"""Families of the models in `_TRAINED` that have one, the newest first."""
_PEOPLE_TOO = ("mano",)
"""Names of such models that are also common names of people, and so of folders."""
_QWEN_VERSION = re.compile(r"(?<![a-z])qwen[-_ ]?(3[._]\d)(?!\d)")
_SIZE = re.compile(r"\d[bB](?![a-zA-Z])")
"""The size in a published model's name, such as 7B or A3B."""
_NAMELESS = re.compile(r"[0-9a-f]{12,}|\d+(?:\.\d+)?[bB](?![a-zA-Z]).*", re.DOTALL)
"""A folder's name that is a revision (in a hub's snapshots) or a size (in `Qwen2.5-VL/7B`), and so no model's name."""
_BASE = re.compile(r"^base_model:([^\n]*(?:\n[ \t]*-[^\n]*)*)", re.MULTILINE)
_NAME = re.compile(r"[^\s,'\"\[\]#-][^\s,'\"\[\]#]*")
"""A name in the list of base models of a card with invalid YAML."""
_FRONT = re.compile(r"\A\s*+---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(
    r"^#[ \t]+(?P<line>[^\n]+)$|<h1\b[^<>]*+>(?P<tagged>(?:(?!</?h1\b).)*+)</h1>",
    re.MULTILINE | re.IGNORECASE | re.DOTALL,
)
"""The first title of a card. A tag without an end is no title, so that matching takes linear time."""
_TAG = re.compile(r"<[^<>]*+>")


def family_of(config: PolicyConfig, directory: Path | None = None) -> ModelFamily:
    """Makes the family of the checkpoint in a directory; without a directory, of `policy.base` and models trained from
    it.

    Raises:
        CheckpointError: the directory has no `config.json`, or no image processor.
        UsageError: there is no such family, or it does not fit the checkpoint; the small policy accepts only its own
    family.
    """
    name = name_of(config, directory)
    family = FAMILIES.class_of(name)(config)
    family.name = name
    if name != "tiny":  # the small policy's control tokens have the general form; its other tokens are words
        checkpoint = directory or config.folder
        family.fit(read_limits(checkpoint))
        family.video = read_video_rule(checkpoint)
        family.tokens = tokens_of(checkpoint)
    return family


def reply_limit(config: PolicyConfig) -> int:
    """Returns the maximum tokens of a reply: `policy.max_new_tokens`, else the family's own."""
    return config.max_new_tokens or FAMILIES.class_of(name_of(config)).reply_tokens(config.template)


def name_of(config: PolicyConfig, directory: Path | None = None) -> str:
    """Returns the name or dotted path of the family that `family_of` makes; raises the same errors."""
    small = directory is None and config.base == "tiny"
    name = (
        "tiny"
        if small
        else _by_architecture(
            directory or config.folder, config.family == "auto", CheckpointError if directory else UsageError
        )
    )
    if name == "tiny" and config.family not in ("auto", "tiny"):
        raise UsageError(f"`policy.family` is {config.family}, and the small policy has its own.", "Set it to auto.")
    if name != "tiny" and config.family == "tiny":
        raise UsageError(
            "`policy.family` is tiny, the small policy's own, and the checkpoint is another model.", "Set it to auto."
        )
    return name if config.family == "auto" else config.family


def _by_architecture(directory: Path, auto: bool, wrong: type[FlywheelError]) -> str:
    """Selects the family by the checkpoint's files; raises `wrong` under auto if they do not decide it."""
    architecture = read_config(directory)
    if is_tiny(architecture):
        return "tiny"
    if not auto:
        return ""
    kind = str(architecture.get("model_type"))
    family = BY_MODEL_TYPE.get(kind, "")
    if family == "qwen3.5":
        family = _version(directory)
    if not family:
        without = ", whose chat template has no calls as XML" if BY_MODEL_TYPE.get(kind) == "qwen3.5" else ""
        raise wrong(
            f"`policy.family` is auto, and no family is known for {directory} (model_type {kind}{without}): its action "
            "grammar and its unit of coordinates are unknown.",
            f"Set policy.family to the family it was trained in: {', '.join(_NAMED)}, or a dotted path.",
        )
    names, own, bases = _called(directory, architecture)
    if BY_MODEL_TYPE[kind] == "qwen3.5":
        family = _agreed(directory, family, names, wrong)
    if kind in PLAIN and not _is_taught(directory):
        family, own, bases = PLAIN[kind], [], []
    if other := _other(_OWNERS[BY_MODEL_TYPE[kind]], names, own, bases):
        raise wrong(
            f"`policy.family` is auto, and {directory} calls itself or its base {other!r}: a model_type of {kind} "
            f"alone does not mean that it writes actions as {family} does.",
            f"Set policy.family to the family it was trained in: {_listed(other)}.",
        )
    return family


def doubt(family: str, directory: Path) -> str:
    """Returns a clause on why a named family contradicts the checkpoint, by the rule of `auto`; empty if nothing does.

    Args:
        family: value of `policy.family`; `auto` and a dotted path contradict nothing.
        directory: the checkpoint's folder.
    """
    if family not in _NAMED:
        return ""
    architecture = read_config(directory)
    kind = str(architecture.get("model_type"))
    owner = _OWNERS.get(BY_MODEL_TYPE.get(kind, ""), "")
    names, own, bases = _called(directory, architecture)
    if owner and (other := _other(owner, names, own, bases)):
        known = next((families for model, families in _FAMILIES_OF.items() if _holds(other, model)), ())
        return (
            f"it calls itself or its base {other!r}, as {' or '.join(known)}" if known and family not in known else ""
        )
    try:
        chosen = _by_architecture(directory, True, UsageError)
    except FlywheelError:
        return ""
    if chosen in (family, *PLAIN.values()):
        return ""
    if family in (*BY_MODEL_TYPE.values(), *(name for _, name in VERSIONS)):
        return f"its model_type {kind} and its chat template are those of {chosen}"
    named = next((name for name in own if _holds(name, owner) and _is_sized(name)), "")
    return f"it calls itself {named!r}, as {chosen}" if named else ""


def _called(directory: Path, architecture: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Collects the names of a checkpoint.

    Returns:
        All names; the names whose size counts as the checkpoint's own; the names of its bases. Names of the second kind
        are the folder's or the hub cache's, the config's, and the title of a model card that names a base.
    """
    cached = [part.rpartition("--")[2] for part in directory.parts if part.startswith("models--")]
    *above, named = _components(str(architecture.get("_name_or_path") or "")) or [""]
    names = [directory.name, *cached, named]
    card = directory / "README.md"
    text = card.read_text(encoding="utf-8-sig", errors="replace") if card.is_file() else ""
    front = _FRONT.match(text)
    found = _TITLE.search(_FENCED.sub("", text[front.end() :] if front else text))
    title = _TAG.sub("", found["line"] or found["tagged"]).strip() if found else ""
    bases = [name for one in _bases(front[1]) for name in _components(one)] if front else []
    above = [one for one in above if not any(_holds(one, name) for name in _PEOPLE_TOO)]
    return [*names, *above, title], [*names, title] if bases else names, bases


def _bases(front: str) -> list[str]:
    """Reads the base models in a model card, as written there: names, paths or addresses.

    A card is untrusted, so its YAML is parsed but never constructed. A card with invalid YAML is read line by line.
    """
    import yaml

    try:
        card = yaml.compose(front, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return [one for found in _BASE.findall(front) for one in _NAME.findall(found)]
    pairs = card.value if isinstance(card, yaml.MappingNode) else ()
    left: list[yaml.Node] = [value for key, value in pairs if key.value == "base_model"][::-1]
    bases, seen = list[str](), set[int]()
    while left:
        node = left.pop()
        if isinstance(node, yaml.ScalarNode):
            bases += str(node.value).replace(",", " ").split() if node.tag != "tag:yaml.org,2002:null" else ()
        elif isinstance(node, yaml.CollectionNode) and id(node) not in seen:
            seen.add(id(node))
            left += [one[1] if isinstance(one, tuple) else one for one in node.value][::-1]
    return bases


def _components(named: str) -> list[str]:
    """Splits a model's path or address into its names, in order and without the owner."""
    address = "://" in named
    parts = [one for one in re.split(r"[/\\]+", named.rpartition("://")[2]) if one]
    if hub := next((one for one in parts if one.startswith("models--")), ""):
        return [hub.rpartition("--")[2]]
    if address:
        parts = parts[1:]
        parts = parts[1:] if parts[:1] == ["models"] else parts
    owned = len(parts) > 1 and (address or (len(parts) == 2 and not named.startswith(("/", "\\", ".", "~"))))
    return parts[1:] if owned else parts


def _other(owner: str, names: Sequence[str], own: Sequence[str], bases: Sequence[str]) -> str:
    """Returns the first name of another model; empty if there is none.

    Such a name contains the name of a known model, or has a size and lacks the owner's name. Names of bases with a size
    are considered only if no own name contains the owner's name.
    """
    others = [one for one in (*_TRAINED, *_PEOPLE_TOO) if one != owner]
    sizes = own if any(_holds(name, owner) for name in own) else [*own, *bases]
    known = (name for name in [*names, *bases] if any(_holds(name, other) for other in others))
    sized = (name for name in sizes if _is_sized(name) and not _holds(name, owner))
    return next(chain(known, sized), "")


def _listed(named: str) -> str:
    """Lists the families for the model of a name; all families if its own is unknown."""
    known = next((families for model, families in _FAMILIES_OF.items() if _holds(named, model)), ())
    if known:
        return f"by its name probably {' or '.join(known)}, else another one or a dotted path"
    return f"{', '.join(_NAMED)}, or a dotted path"


def _is_sized(name: str) -> bool:
    """Checks whether a name is a model's and has a size."""
    return bool(_SIZE.search(name)) and not _NAMELESS.fullmatch(name)


def _holds(name: str, model: str) -> bool:
    """Checks whether a name contains a model's name as a whole word, with or without its hyphens."""
    return bool(re.search(rf"(?<![a-z]){model.replace('-', '[-_ ]?')}(?![a-z])", name.lower()))


def _version(directory: Path) -> str:
    """Selects the family of a Qwen3.5 or its successor by the chat template; empty if there is no known one."""
    text = _chat_template(directory)
    return next((name for mark, name in VERSIONS if mark in text), "") if "<function=" in text else ""


def _agreed(directory: Path, family: str, names: Sequence[str], wrong: type[FlywheelError]) -> str:
    """Returns the family that the name and the chat template of a Qwen3.5 or its successor agree on.

    Args:
        directory: the checkpoint.
        family: the family by its chat template.
        names: its names; the first name with a version counts.
        wrong: type of the error if name and chat template disagree.
    """
    for name in names:
        if _holds(name, QWEN_CUA[0]):
            return QWEN_CUA[1]
        found = _QWEN_VERSION.search(name.lower())
        meant = NAMED_VERSIONS.get(f"qwen{found[1].replace('_', '.')}") if found else None
        if meant and meant != family:
            raise wrong(
                f"`policy.family` is auto, and {directory} is named {name!r} after {meant}, but its chat "
                f"template is that of {family}.",
                f"Set policy.family to {meant} or {family}, whichever it was trained in.",
            )
        if meant:
            break
    return family


def _chat_template(directory: Path) -> str:
    """Reads the chat template that transformers takes: of the first of these files that has one; empty without one."""
    own = directory / "chat_template.jinja"
    if own.is_file() and (written := _text(own)).strip():
        return written
    for name in ("chat_template.json", "tokenizer_config.json"):
        file = directory / name
        try:
            given = json.loads(_text(file)).get("chat_template") if file.is_file() else None
        except (ValueError, AttributeError, RecursionError):
            continue
        if given:
            return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return ""


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8-sig", errors="replace")


def _is_taught(directory: Path) -> bool:
    """Checks whether the checkpoint's vocabulary has the token that begins a tool call."""
    files = (directory / name for name in ("tokenizer_config.json", "added_tokens.json", "tokenizer.json"))
    return any(file.is_file() and TAUGHT in file.read_text(errors="replace") for file in files)
