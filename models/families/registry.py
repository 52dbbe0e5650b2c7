"""Which family a checkpoint is of: the one that `policy.family` names, else by its architecture."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.families.family import ModelFamily
from models.families.processor import read_limits
from models.tiny.layout import is_tiny, read_config
from schemas.config.sections import PolicyConfig
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
        "ui-tars-2": f"{_HERE}.ui_tars_2:UiTars2Family",
        "qwen2.5-vl": f"{_HERE}.qwen:Qwen25Family",
        "qwen3-vl": f"{_HERE}.qwen:Qwen3Family",
        "opencua": f"{_HERE}.opencua:OpenCuaFamily",
        "opencua-qwen2": f"{_HERE}.opencua:OpenCuaQwen2Family",
        "holo-1.5": f"{_HERE}.holo:HoloFamily",
        "holo-2": f"{_HERE}.holo:Holo2Family",
        "glm": f"{_HERE}.glm:GlmFamily",
        "internvl": f"{_HERE}.internvl:InternVlFamily",
        "scalecua": f"{_HERE}.scalecua:ScaleCuaFamily",
        "scalecua-internvl": f"{_HERE}.scalecua:ScaleCuaInternFamily",
    },
)
"""Families by name; each is made with `policy.*`."""
BY_MODEL_TYPE = {
    "qwen2_vl": "ui-tars-1.0",
    "qwen2_5_vl": "qwen2.5-vl",
    "qwen3_vl": "qwen3-vl",
    "qwen3_vl_moe": "qwen3-vl",
    "glm4v": "glm",
    "glm4v_moe": "glm",
    "glm46v": "glm",
    "internvl": "internvl",
    "internvl_chat": "internvl",
}
"""Families by the `model_type` of a checkpoint's `config.json`, where `policy.family` is auto. Any other type is
refused, and so is a checkpoint of these types that goes by another name: UI-TARS 1.5, OpenCUA, Holo, ScaleCUA and Fara
share those of Qwen and have to be named."""
PLAIN = {"qwen2_5_vl": "pixels", "qwen3_vl": "thousandths", "qwen3_vl_moe": "thousandths"}
"""The same of a checkpoint that was never taught its architecture's own grammar."""
TAUGHT = "<tool_call>"
"""A token of every published Qwen2.5-VL and Qwen3-VL, and of what was trained from them."""


_NAMED = [name for name in FAMILIES.names if name != "tiny"]
_OWNERS = {"ui-tars-1.0": "ui-tars", "qwen2.5-vl": "qwen", "qwen3-vl": "qwen", "glm": "glm", "internvl": "internvl"}
"""What the names of a family's own published checkpoints have in common."""
_SIZE = re.compile(r"\d[bB](?![a-zA-Z])")
"""The size in a published model's name, such as 7B or A3B."""
_BASE = re.compile(r"^base_model:", re.MULTILINE)
_TITLE = re.compile(r"^#[ \t]+(.+)$", re.MULTILINE)


def family_of(config: PolicyConfig, directory: Path | None = None) -> ModelFamily:
    """The family of the checkpoint in a directory, or, without one, of `policy.base` and all that is trained from it.

    Raises:
        CheckpointError: the directory has no `config.json`, or no image processor.
        UsageError: there is no such family, or it does not fit the checkpoint; the small policy knows its own only.
    """
    name = name_of(config, directory)
    family = FAMILIES.class_of(name)(config)
    family.name = name
    if name != "tiny":
        family.fit(read_limits(directory or Path(config.base)))
    return family


def reply_limit(config: PolicyConfig) -> int:
    """Tokens of a reply at most: as `policy.max_new_tokens` says, else the family's own."""
    return config.max_new_tokens or FAMILIES.class_of(name_of(config)).max_new_tokens


def name_of(config: PolicyConfig, directory: Path | None = None) -> str:
    """The name or dotted path of the family that `family_of` makes; raises as that does."""
    small = directory is None and config.base == "tiny"
    name = (
        "tiny"
        if small
        else _by_architecture(
            directory or Path(config.base), config.family == "auto", CheckpointError if directory else UsageError
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
    """The family by the checkpoint's own files; raises `wrong` under auto where they do not decide."""
    architecture = read_config(directory)
    if is_tiny(architecture):
        return "tiny"
    if not auto:
        return ""
    kind = str(architecture.get("model_type"))
    if kind in PLAIN and not _is_taught(directory):
        return PLAIN[kind]
    if kind not in BY_MODEL_TYPE:
        raise wrong(
            f"`policy.family` is auto, and no family is known for {directory} (model_type {kind}): nothing says how "
            "it writes actions and what its coordinates count.",
            f"Set policy.family to the family it was trained in: {', '.join(_NAMED)}, or a dotted path.",
        )
    family = BY_MODEL_TYPE[kind]
    owner = _OWNERS[family]
    if other := next((name for name in _called(directory, architecture) if owner not in name.lower()), ""):
        raise wrong(
            f"`policy.family` is auto, and {directory} calls itself {other!r}: a model_type of {kind} alone does not "
            f"say that it writes actions as {family} does.",
            f"Set policy.family to the family it was trained in: {', '.join(_NAMED)}, or a dotted path.",
        )
    return family


def _called(directory: Path, architecture: Mapping[str, Any]) -> list[str]:
    """Names of published models that a checkpoint goes by: in its folder's name (or the hub's cache's), in its
    config, and as the title of a model card that names the model it was trained from."""
    named = [directory.name, *(part for part in directory.parts if part.startswith("models--"))]
    named.append(str(architecture.get("_name_or_path") or ""))
    names = [one.replace("--", "/").rpartition("/")[2] for one in named]
    names = [one for one in names if _SIZE.search(one)]
    card = directory / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    if _BASE.search(text.partition("\n---")[0]) and (title := _TITLE.search(text)):
        names.append(title[1].strip())
    return names


def _is_taught(directory: Path) -> bool:
    """Whether the checkpoint's vocabulary has the token that begins a tool call."""
    files = (directory / name for name in ("tokenizer_config.json", "added_tokens.json", "tokenizer.json"))
    return any(file.is_file() and TAUGHT in file.read_text(errors="replace") for file in files)
