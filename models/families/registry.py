"""Which family a checkpoint is of: the one that `policy.family` names, else by its architecture."""

from pathlib import Path

from models.families.family import ModelFamily
from models.families.processor import read_limits
from models.tiny.layout import is_tiny, read_config
from schemas.config.sections import PolicyConfig
from schemas.failure import UsageError
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
}
"""Families by the `model_type` of a checkpoint's `config.json`, where `policy.family` is auto. UI-TARS 1.5, OpenCUA,
Holo and ScaleCUA share those of Qwen and have to be named."""
PLAIN = {"qwen2_5_vl": "pixels"}
"""The same of a checkpoint that was never taught its architecture's own grammar; all others write thousandths."""
TAUGHT = "<tool_call>"
"""A token of every published Qwen2.5-VL and Qwen3-VL, and of what was trained from them."""


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
    name = "tiny" if small else _by_architecture(directory or Path(config.base))
    if name == "tiny" and config.family not in ("auto", "tiny"):
        raise UsageError(f"`policy.family` is {config.family}, and the small policy has its own.", "Set it to auto.")
    if name != "tiny" and config.family == "tiny":
        raise UsageError(
            "`policy.family` is tiny, the small policy's own, and the checkpoint is another model.", "Set it to auto."
        )
    return name if config.family == "auto" else config.family


def _by_architecture(directory: Path) -> str:
    architecture = read_config(directory)
    if is_tiny(architecture):
        return "tiny"
    kind = str(architecture.get("model_type"))
    if kind in BY_MODEL_TYPE and (kind == "qwen2_vl" or _is_taught(directory)):
        return BY_MODEL_TYPE[kind]
    return PLAIN.get(kind, "thousandths")


def _is_taught(directory: Path) -> bool:
    """Whether the checkpoint's vocabulary has the token that begins a tool call."""
    files = (directory / name for name in ("tokenizer_config.json", "added_tokens.json", "tokenizer.json"))
    return any(file.is_file() and TAUGHT in file.read_text(errors="replace") for file in files)
