"""Claim names for policies outside of iterations, before work on them starts.

A claim is a small file in the lake, which only one process can create. It has a digest of the policy's recipe. If the
owner of a claim is dead, a process with the same recipe takes over the name and its unfinished work. The name is never
used for another recipe. An owner on another machine counts as alive.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from itertools import count
from typing import Any

from schemas.failure import UsageError
from storage.lake import Lake
from tasks.shared.lease import Owner
from tasks.shared.policies import policies

FOLDER = "claims"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")
RESERVED = ("champion", "explorer", "run")
"""Names that policies must not have: words of commands, and `run`, the folder of the lease on iterations
(`tasks.shared.lease`). An existing policy named `run` keeps its name."""


class Claim(Owner):
    """Content of the file of a claim."""

    recipe: str
    """Digest of the recipe."""


def claim(lake: Lake, stem: str, recipe: Mapping[str, Any], name: str | None = None) -> str:
    """Claim the first free name of the form `STEM-0000`, or the name of an abandoned policy with the same recipe.

    Args:
        lake: the lake of the policy.
        stem: the name without its number.
        recipe: recipe of the policy, as JSON values.
        name: claim this name instead.

    Raises:
        UsageError: `name` is invalid, or another policy has this name.
    """
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
    if name is None:
        names = (f"{stem}-{number:04d}" for number in count())
        return next(one for one in names if _claimed(lake, one, digest))
    if not NAME.fullmatch(name) or name in RESERVED:
        taken = f", and none of {', '.join(RESERVED)}" if name in RESERVED else ""
        raise UsageError(f"`{name}` is no name of a policy.", f"Use letters, digits, dots and dashes{taken}.")
    if not _claimed(lake, name, digest):
        raise UsageError(f"The name `{name}` is taken in {lake.uri}.", "Choose another one.")
    return name


def _claimed(lake: Lake, name: str, recipe: str) -> bool:
    store, folder = lake.blobs.store, f"{FOLDER}/{name}"
    there = sorted(name for name in store.sizes(folder) if name.endswith(".json"))
    row = policies(lake).get(name)
    if there or row:
        if not there or (row and row.status != "candidate"):
            return False
        try:
            last = Claim.model_validate_json(store.get(there[-1]))
        except FileNotFoundError:  # another process deleted the file, or the listing is stale
            return False
        if last.recipe != recipe or not last.gone:
            return False
    return store.put_once(f"{folder}/{len(there):04d}.json", Claim.this(recipe=recipe).model_dump_json().encode())
