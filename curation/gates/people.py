"""The gate `people`: samples a share of the passed trajectories for review by people.

The sample depends only on the trajectory's id. So a larger share contains every smaller one, and repeated filter runs
take the same sample.
"""

import hashlib
from collections.abc import Sequence

from curation.gates.gate import Gate, GateContext, GateResult
from schemas.config.section import Section, Share
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory


class PeopleOptions(Section):
    """`filter.options.people`."""

    share: Share = 0.05
    """Share of trajectories in the sample."""
    wait: bool = False
    """Keep sampled trajectories in quarantine until the review. If false, they are trained on meanwhile."""


class PeopleGate(Gate[PeopleOptions]):
    """Marks sampled trajectories by a verdict; does not apply to the rest."""

    name = "people"
    sends_to = "quarantine"
    section = PeopleOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult | None:
        """Pass a sampled trajectory, unless it must wait for the review."""
        if not drawn(trajectory.trajectory_id, self.options.share):
            return None
        if self.options.wait:
            return GateResult(False, "drawn for people, and waits until one has looked")
        return GateResult(True, "drawn for people, and used meanwhile")


def drawn(trajectory_id: str, share: float) -> bool:
    """Whether a trajectory is in the sample of a share in [0, 1]: by the first 48 bits of a hash of its id."""
    number = int.from_bytes(hashlib.sha256(f"for people {trajectory_id}".encode()).digest()[:6], "big")
    return number < share * 2**48
