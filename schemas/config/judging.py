"""The sections `filter` and `judge`: gates for every trajectory, and the judge of those without a verifier."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from schemas.config.section import Count, Section, Share, Whole
from schemas.registry import seam


class FilterConfig(Section):
    """Gates that every trajectory has to pass before its data is used."""

    gates: Annotated[tuple[str, ...], Field(min_length=1)] = (
        "environment",
        "actions",
        "thoughts",
        "loops",
        "redundant",
        "transient",
        "evidence",
        "shortcut",
        "duplicates",
        "verifier",
        "judge",
        "people",
    )
    """The gates in order, each by name or as `my_package.my_gate:MyGate`; the first that turns a trajectory away
    decides. `environment` comes first: any other gate would take a sandbox's failure for the policy's. Without
    `verifier` a failure passes, unless a gate of yours turns it away; without `judge` a judged trajectory keeps the
    judge's result from when it was made."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Each gate's own keys, under its name: `filter.options.loops.max_repeats`."""
    prefixes: Literal["none", "people", "all"] = "people"
    """Authors whose marks of a wrong step make the steps before it examples: none, people, or any gate as well. A gate
    cannot know whether the steps before were of use: of a failure that its verifier turned away, all steps but the last
    would be imitated."""
    corrections: Literal["all", "verified"] = "all"
    """Which of people's corrections of steps are learned from: all but those that a sandbox refuted or that are of a
    verified success and not verified themselves, or only those that a sandbox saw succeed (docs/annotate.md)."""

    @model_validator(mode="after")
    def _of_their_gates(self) -> "FilterConfig":
        if self.model_fields_set:  # the defaults hold, and are made before gates can be imported
            seam("curation.gates.registry:gates_of")(self)
        return self


class JudgeConfig(Section):
    """The judge, which scores trajectories of tasks whose environment has no verifier."""

    kind: str = "none"
    """`endpoint`: a model behind OpenAI's chat completions. `local`: a network that `flywheel judge --train` made.
    `fake`: for tests. Or `my_package.my_judge:MyJudge`."""
    options: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """The judge's own keys; of `endpoint`: `url`, `model`, `key_variable` (the environment variable that holds the key,
    FLYWHEEL_JUDGE_KEY unless another is named), `timeout_s`, `temperature` and `concurrency`; of `local`: `checkpoint`,
    its folder."""
    threshold: Share = 0.5
    """The score from which a trajectory counts as a success; rewards of groups are the scores themselves."""
    screens: Count = 5
    """How many of the last screens the judge sees (UI-TARS-2: 5)."""
    tries: Count = 2
    """A judge that fails so often makes the trajectory an environment failure."""
    votes: Count = 1
    """How often a judge is asked for one trajectory. All votes must accept it: the score is the lowest. Of votes that
    err independently, n false ones are as rare as the n-th power (ZeroGUI, arXiv 2505.23762: 4 at temperature 1)."""
    pairwise: bool = False
    """Whether a preference between two trajectories of a task without a verifier is kept only where the judge, shown
    both in either order, prefers the same one (Seed1.5-VL, arXiv 2505.07062)."""
    audit: Whole = 40
    """Trajectories of tasks with a verifier that the judge is asked about in each iteration, to learn how often it is
    right; its judgement of them changes nothing else."""
    evidence_min: Whole = 100
    """Until so many of its verdicts could be compared with a verifier's or with people's, a judge is on probation: its
    rejections count, and trajectories that it accepts are held back. 100, two thirds of them failures, distinguish a
    false accept rate of 0.1 from one of 0.2; a fifth of them must be failures, without which nothing is known of false
    accepts. 0 trusts it unseen."""
    kappa_min: Share = 0.6
    """A judge with less agreement than this (Cohen's kappa) is on probation; from 0.61 on it is called substantial
    (Landis and Koch, 1977)."""
    false_accept_max: Share = 0.1
    """A judge that accepts a larger share of failures is on probation: each teaches an error as a success."""

    @model_validator(mode="after")
    def _of_its_kind(self) -> "JudgeConfig":
        if self.model_fields_set:
            seam("models.judges.registry:kind_of")(self)
        return self
