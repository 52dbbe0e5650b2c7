"""Which family a checkpoint is of: the one that `policy.family` names, else by its architecture."""

from pathlib import Path

from models.families.family import ModelFamily
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
        CheckpointError: the directory has no `config.json`.
        UsageError: there is no such family, or it is not the small policy's, which knows its own only.
    """
    if directory is None and config.base == "tiny":
        name = "tiny"
    else:
        architecture = read_config(directory or Path(config.base))
        other = BY_MODEL_TYPE.get(str(architecture.get("model_type")), "thousandths")
        name = "tiny" if is_tiny(architecture) else other
    if name == "tiny" and config.family not in ("auto", "tiny"):
        raise UsageError(f"`policy.family` is {config.family}, and the small policy has its own.", "Set it to auto.")
    return FAMILIES.class_of(name if config.family == "auto" else config.family)(config)
