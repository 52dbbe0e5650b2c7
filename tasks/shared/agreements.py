"""Count the agreement of judges with verifiers and reviewers, by iteration, and decide on probation."""

from curation.agreement import Confusion, agreement_of, probation
from schemas.config.curating import JudgeConfig
from schemas.table import utc_now
from schemas.tables.agreement import Against, Agreement
from storage.catalog import answers
from storage.filters import quoted
from storage.lake import Lake


def renew_agreements(lake: Lake, iteration: int) -> None:
    """Compare the verdicts of all judges on an iteration with verifiers and reviewers, and store the counts.

    A repeated call writes the same keys, and removes counts that depended on an undone decision.
    """
    found = answers(lake, _agreement, "agreements", iteration=iteration)
    lake.upsert("agreements", found)
    counted = {(one.judge_version, one.against) for one in found}
    for old in lake.rows(Agreement, {"iteration": iteration}):
        if (old.judge_version, old.against) not in counted:
            whose = f"against = '{old.against}' AND judge_version = {quoted([old.judge_version])}"
            lake.delete("agreements", f"iteration = {iteration} AND {whose}")


class Standing:
    """Finds judges on probation, from the agreements in the lake at the first call.

    Args:
        lake: the lake with the agreements.
        config: config with the limits.
    """

    def __init__(self, lake: Lake, config: JudgeConfig) -> None:
        self._lake, self._config = lake, config
        self._known: dict[str, str] = {}

    def probation(self, version: str) -> str:
        """Return the reason why this version of a judge is on probation; empty if it is not."""
        if version not in self._known:
            agreements = self._lake.rows(Agreement, {"judge_version": version})
            self._known[version] = probation(agreements, self._config)
        return self._known[version]


def _agreement(judge_version: str, against: Against, iteration: int, **counts: int) -> Agreement:
    return agreement_of(judge_version, against, iteration, Confusion(**counts), utc_now())
