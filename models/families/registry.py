"""Which family a checkpoint is of: the one that `policy.family` names, else by its architecture."""

from pathlib import Path

from models.families.family import ModelFamily
from models.families.processor import read_limits
from models.tiny.layout import is_tiny, read_config
from schemas.config.sections import PolicyConfig
from schemas.failure import UsageError
from schemas.registry import Registry

FAMILIES = Registry(
    "policy.family",
    ModelFamily,
    {
        "tiny": "models.families.family:TinyFamily",
        "thousandths": "models.families.family:ModelFamily",
        "pixels": "models.families.family:PixelFamily",
    },
)
"""Families by name; each is made with `policy.*`."""
BY_MODEL_TYPE = {"qwen2_5_vl": "pixels"}
"""Families by the `model_type` of a checkpoint's `config.json`; others write thousandths."""


def family_of(config: PolicyConfig, directory: Path | None = None) -> ModelFamily:
    """The family of the checkpoint in a directory, or, without one, of `policy.base` and all that is trained from it.

    Raises:
        CheckpointError: the directory has no `config.json`, or no image processor.
        UsageError: there is no such family, or it does not fit the checkpoint; the small policy knows its own only.
    """
    folder = None if directory is None and config.base == "tiny" else directory or Path(config.base)
    name = "tiny" if folder is None else _by_architecture(folder)
    if name == "tiny" and config.family not in ("auto", "tiny"):
        raise UsageError(f"`policy.family` is {config.family}, and the small policy has its own.", "Set it to auto.")
    family = FAMILIES.class_of(name if config.family == "auto" else config.family)(config)
    if folder is not None and name != "tiny":
        family.fit(read_limits(folder))
    return family


def _by_architecture(directory: Path) -> str:
    architecture = read_config(directory)
    if is_tiny(architecture):
        return "tiny"
    return BY_MODEL_TYPE.get(str(architecture.get("model_type")), "thousandths")
