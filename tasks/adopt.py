"""Adopt a checkpoint of another project: copy it into the lake as a candidate."""

import hashlib
from pathlib import Path

from models.safe import SAFETENSORS, left_over, require_sound, weight_files, weights_of
from models.tiny.layout import CRITIC, is_tiny, read_config, sizes_in
from models.vlm import VlmPolicy
from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.stage import PREPARE
from tasks.running.boundary import boundary
from tasks.running.run import run_of
from tasks.shared.lease import claim
from tasks.shared.policies import PolicyRecipe, champion_if_any, last_iteration, register

TAKEN = (SAFETENSORS, ".json", ".txt", ".jinja", ".model")
"""Suffixes of files that are copied: weights, settings, vocabularies and templates."""


@boundary("adopt")
def adopt_checkpoint(config: Config, directory: str, name: str | None) -> str:
    """Copy a checkpoint into the lake, register it without a parent, and return its version.

    The policy is a candidate. In a lake without policies, which is made if it does not exist, it is the champion.

    Raises:
        UsageError: the name is in use or invalid, or the champion has the same weights.
        CheckpointError: the directory cannot be loaded, or its weights are not in safetensors or not finite. Nothing
            was written.
    """
    lake = run_of(config).lake
    source = Path(directory).absolute()
    incumbent = champion_if_any(lake)
    files = [file.name for file in files_of(source)]
    VlmPolicy(source, config.policy)
    require_sound(source)
    if incumbent and _weights(source).items() <= lake.blobs.sums(incumbent.checkpoint).items():
        if incumbent.kind == "initial" and not lake.count("evaluations", {"policy_version": incumbent.policy_version}):
            return incumbent.policy_version  # an earlier process was killed before its evaluation
        problem = f"{source} holds the very weights of the champion, {incumbent.policy_version}."
        raise UsageError(
            problem, "There is nothing to adopt; `flywheel rollback POLICY` returns to an earlier champion."
        )
    version = claim(lake, "adopted", {"directory": str(source)}, name)
    if lake.count("policies", {"policy_version": version}):
        return version  # an earlier process copied the checkpoint and was killed
    checkpoint = lake.blobs.put_directory(source, f"checkpoints/{version}", files)
    found = read_config(source)
    shape: dict[str, object] = {"base": "tiny", **sizes_in(found)} if is_tiny(found) else {"base": str(source)}
    made_by = config.model_copy(update={"policy": config.policy.model_copy(update=shape)})
    now, kind = (last_iteration(lake), "adopted") if incumbent else (PREPARE, "initial")
    recipe = PolicyRecipe(version, "", now, {}, kind)
    register(lake, made_by, recipe, "adopted", checkpoint, {"directory": str(source)}, config.seed)
    return version


def files_of(source: Path) -> list[Path]:
    """Return the files of a model directory that are copied.

    Raises:
        UsageError: the path is not a directory.
        CheckpointError: the directory has no weights, or pickled weights.
    """
    if not source.is_dir():
        raise UsageError(f"{source} is not a directory.", "Name a Hugging Face model directory.")
    weights_of(source)
    spare = left_over(source, {CRITIC})
    files = (file for file in sorted(source.iterdir()) if file.is_file() and file.name not in spare)
    return [file for file in files if file.suffix in TAKEN]


def _weights(source: Path) -> dict[str, str]:
    found = dict[str, str]()
    for file in weight_files(source):
        with file.open("rb") as opened:
            found[file.name] = hashlib.file_digest(opened, "sha256").hexdigest()
    return found
