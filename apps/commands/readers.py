"""Find the policies whose training read a trajectory."""

import json
from collections.abc import Collection

from schemas.tables.policy import PolicyVersion
from storage.lake import Lake
from tasks.shared.policies import made_from, policies
from tasks.shared.training_ledger import read_by, watches


def trained_on(lake: Lake, policy: PolicyVersion, recordings: bool = False) -> list[str]:
    """Lists the trajectories whose data a policy's training read, with `recordings` also recordings without one."""
    train = json.loads(policy.config).get("train", {})
    ct = train.get("ct", {})
    perceives = bool(ct.get("perception") or ct.get("video"))
    seen = recordings and watches(policy.method, train)
    return sorted(read_by(lake, policy.method, policy.iteration, policy.pins, perceives, seen))


def readers_of(lake: Lake, names: Collection[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Finds the policies whose training read each of these trajectories, oldest first, and the policies for which this
    is unknown, since pinned table versions were removed."""
    found: dict[str, list[str]] = {name: [] for name in names}
    unknown: list[str] = []
    for version, policy in policies(lake).items():
        if lake.missing(policy.pins):
            unknown.append(version)
            continue
        for name in found.keys() & set(trained_on(lake, policy, recordings=True)):
            found[name].append(version)
    return found, unknown


def made_from_readers(lake: Lake, readers: Collection[str], unknown: Collection[str]) -> tuple[list[str], list[str]]:
    """Lists the policies made from readers, as children or by merging.

    Returns:
        These policies, and the policies whose data is unknown together with the policies made from them.
    """
    through = made_from(lake, readers)
    known = {*readers, *through}
    return through, [name for name in [*unknown, *made_from(lake, unknown)] if name not in known]
