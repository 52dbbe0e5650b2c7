"""Checks that a checkpoint fits the state it is to fill, and names the misfit."""

import difflib
from collections.abc import Sequence

from learning.checkpoint.loading import Wanted
from learning.checkpoint.manifest import Manifest, folder_of
from learning.checkpoint.state import LocalBox, State, dtype_of, holdings, shape_of
from schemas.failure import CheckpointError
from storage.objects import ObjectStore

_MEND = "Load it into the architecture that it was saved from."


def match(store: ObjectStore, manifest: Manifest, state: State, found: list[LocalBox]) -> Wanted:
    """Lists the boxes that this rank wants, and appends its memory to `found` in the same order.

    Raises:
        CheckpointError: a tensor that the checkpoint does not have, or of another shape or type.
    """
    where = store.path(folder_of(manifest.step))
    for name, part in state.items():
        held = holdings(name, part)
        saved = manifest.tensors.get(name)
        if saved is None:
            near = difflib.get_close_matches(name, manifest.tensors, 1)
            hint = f" The nearest is `{near[0]}`." if near else ""
            raise CheckpointError(f"{where} has no tensor `{name}`.{hint}", _MEND)
        if (saved.shape, saved.torch_dtype) != (shape_of(part), dtype_of(part)):
            here = f"{str(dtype_of(part)).removeprefix('torch.')} {shape_of(part)}"
            raise CheckpointError(f"`{name}` is {saved.dtype} {saved.shape} in {where} and {here} here.", _MEND)
        found += held
    return [(held.name, held.box) for held in found]


def check_names(store: ObjectStore, manifest: Manifest, wanted: Sequence[Wanted], partial: bool) -> None:
    """Raises CheckpointError if the checkpoint has tensors that no rank asks for, unless `partial`."""
    asked = {name for boxes in wanted for name, _ in boxes}
    left = [name for name, entry in manifest.tensors.items() if name not in asked and 0 not in entry.shape]
    if left and not partial:
        listed = ", ".join(f"`{name}`" for name in left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
        where = store.path(folder_of(manifest.step))
        raise CheckpointError(f"{where} also has {listed}.", f"{_MEND} Or ask for a part with `partial=True`.")
