"""Count proposed tasks, accepted and rejected, by maker."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from schemas.tables.proposal import Status
from storage.filters import Where
from storage.lake import Lake


@dataclass(frozen=True, slots=True)
class ProposalResult:
    """The columns of a proposal that are counted; its states are large."""

    task_id: str
    maker: str
    status: Status
    reason: str
    tries: int
    solved: int


class Proposals(BaseModel):
    """Counts of the results of some proposals. Those that are neither accepted nor rejected were retired."""

    model_config = ConfigDict(frozen=True)

    proposed: int
    accepted: int
    rejected: Mapping[str, int]
    """Number of rejected proposals by reason."""
    tried: int
    """Number of trajectories that tried accepted proposals."""
    solved: int

    @property
    def retired(self) -> int:
        """Number of accepted tasks that a user retired."""
        return self.proposed - self.accepted - sum(self.rejected.values())

    @property
    def why(self) -> str:
        """The reasons of rejections with their numbers, the most frequent first."""
        ranked = sorted(self.rejected.items(), key=lambda it: (-it[1], it[0]))
        return ", ".join(f"{count} {reason}" for reason, count in ranked)


def count_proposals(rows: Sequence[ProposalResult]) -> Proposals:
    """Count the results of these proposals."""
    rejected = Counter(one.reason for one in rows if one.status == "rejected")
    return Proposals(
        proposed=len(rows),
        accepted=sum(one.status == "accepted" for one in rows),
        rejected=dict(sorted(rejected.items())),
        tried=sum(one.tries for one in rows),
        solved=sum(one.solved for one in rows),
    )


def by_maker(rows: Sequence[ProposalResult]) -> dict[str, Proposals]:
    """Count the results of these proposals by maker, in alphabetical order."""
    names = sorted({one.maker for one in rows})
    return {name: count_proposals([one for one in rows if one.maker == name]) for name in names}


def results_of(lake: Lake, where: Where | None = None) -> list[ProposalResult]:
    """Return the results of the proposals of a lake, or of those that meet a condition (`Lake.read`)."""
    columns = tuple(ProposalResult.__dataclass_fields__)
    return [ProposalResult(**row) for row in lake.read("proposals", columns, where).to_pylist()]


def proposals_of(lake: Lake) -> dict[str, Proposals]:
    """Count the results of all proposals of a lake, by maker."""
    return by_maker(results_of(lake))
