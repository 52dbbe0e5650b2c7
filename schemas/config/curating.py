"""The sections of curation: `filter`, `judge`, `annotate`, `reflect`, `think` and `synthesis`."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from schemas.config.section import Count, PartsSection, ReadIf, Section, Share, Whole


class FilterConfig(PartsSection):
    """Gates that every trajectory has to pass before its data is used."""

    parts = "curation.gates.registry:gates_of"

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


class JudgeConfig(PartsSection):
    """The judge, which scores trajectories of tasks whose environment has no verifier."""

    parts = "models.judges.registry:kind_of"
    read_if = (ReadIf("judge.kind"),)

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


PerceptionKind = Literal["description", "caption", "question", "marks", "transition"]


class AnnotateConfig(Section):
    """Perception data that is made of screens, whatever the actions on them (docs/perception.md)."""

    read_if = (ReadIf("annotate.perception", keys=("screens", "per_screen")),)

    perception: tuple[PerceptionKind, ...] = ("description", "caption", "question", "marks", "transition")
    """Kinds of perception data that are made; `train.perception` and `train.ct.perception` set how much a training
    reads."""
    screens: Count = 100
    """Screens of an iteration that it is made of; they are drawn by their content."""
    per_screen: Count = 2
    """Descriptions, questions and questions about marks per screen; there is one caption."""
    reader: str = "page"
    """Source of elements for screens whose environment lists none: `page`: no source; `rapidocr`: text read off the
    pixels (the extra `ocr`); or a dotted path to a `models.readers.reader.ScreenReader`."""


class ReflectConfig(PartsSection):
    """Corrections of failed trajectories, each seen to succeed before it is learned from (docs/reflect.md)."""

    parts = "models.proposers.proposer:PROPOSERS.read"
    read_if = (ReadIf("reflect.on", (), ("trajectories", "steps", "recover", "proposers", "options"), refused=False),)

    on: bool = False
    """Whether an iteration goes back to its failures; for methods that imitate or prefer: `sft`, `rft`, `dpo`."""
    trajectories: Count = 100
    """How many failed trajectories of an iteration are gone back to at most: the policy's own before the explorer's,
    the tasks in turn."""
    steps: Count = 1500
    """How many sandbox steps that may take in an iteration, replayed ones included."""
    attempts: Count = 8
    """How often a state is tried before an earlier one is. More finds rarer corrections, and costs steps."""
    ahead: Count = 3
    """How many steps a correction may take, itself the first: one that needs many more corrects another step."""
    people: bool = True
    """Whether people's corrections are tried in a sandbox, `attempts` times at most, before they are used for training.
    It costs sandbox steps only where there is something to try, and needs no `reflect.on`."""
    recover: bool = True
    """Whether the error itself is performed again and recovered from, where it did not end the trajectory."""
    proposers: Annotated[tuple[str, ...], Field(min_length=1)] = ("policy", "precedent")
    """Proposers of corrections, in turn: `policy` (the champion at a higher temperature, once there is a trained one),
    `precedent` (successful actions of the task on other seeds, done to the like elements; else the explorer),
    `explorer` (untried elements of the page), `endpoint` (a served model), or `my_package.my_proposer:MyProposer`."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Each proposer's own keys, under its name: `reflect.options.endpoint.url`."""


class ThinkConfig(PartsSection):
    """Thoughts of accepted steps that have none of their own (docs/thoughts.md)."""

    parts = "models.thinkers.thinker:THINKERS.read"
    read_if = (ReadIf("policy.thoughts", keys=("keep_without",)),)

    thinkers: tuple[str, ...] = ("template",)
    """The thinkers, in order: the first whose thought is kept. `policy` (the champion, which is not shown the action: a
    thought is kept where it led to the same one), `endpoint` (a served model, which is shown the action or not),
    `rules` (from the page's elements), `template` (a few words for each kind of action), or
    `my_package.my_thinker:MyThinker`. None: steps stay without."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Each thinker's own keys, under its name: `think.options.endpoint.url`."""
    tries: Count = 4
    """How often a model is asked about a step, until a thought is kept."""
    most: Count = 20_000
    """Maximum requests to models in an iteration, all tries counted; the remaining steps then go to the next
    thinker."""
    longest: Annotated[int, Field(ge=20)] = 800
    """Characters of a thought; a longer one is turned away."""
    keep_without: Share = 0.0
    """Share of the trajectories that supervised training reads without their thoughts, under the prompt that asks for
    the action alone: a policy trained so can act either way (`policy.thoughts`)."""


class SynthesisConfig(PartsSection):
    """New tasks, made of existing ones and verified before any training on them (docs/synthesis.md)."""

    parts = "curation.synthesis.makers:makers_of"
    read_if = (ReadIf("synthesis.on", refused=False),)

    on: bool = False
    """Whether every iteration begins with it; `flywheel tasks synthesize` does it once. Made tasks that were accepted
    are rolled out either way."""
    makers: Annotated[tuple[str, ...], Field(min_length=1)] = ("compose", "vary", "harden", "obfuscate", "chain")
    """The makers of tasks: those, `endpoint` (a served model), or `my_package.my_maker:MyMaker`. All but `compose` need
    an environment with linked pages, such as `site`."""
    proposals: Count = 20
    """Proposals of each maker in an iteration, for each environment."""
    reward: str = "reader"
    """Author of rewards from the words alone: `reader` (it reads the sentences of our own makers), `endpoint`, or
    `my_package.my_reward:MyReward`."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Each maker's own keys, under its name, and the reward maker's under `reward`."""
    near_misses: Count = 3
    """A reward counts only if it turns away at least so many states that nearly are the golden one."""
    max_steps: Annotated[int, Field(ge=1, le=1000)] = 100
    """The highest limit that a made task may have. A task is turned away if a player that does not know where to look
    needs more steps, with a margin, in any of several trajectories."""
    solver: Literal["explorer", "champion"] = "explorer"
    """The policy that tries accepted tasks."""
    tries: Whole = 8
    """Number of tries; 0 rolls nothing out, and success is not required."""
    solved_above: Share = 0.0
    """A task is turned away if at most this share of the tries succeeds: nothing would be learned from it yet."""
    solved_below: Share = 1.0
    """A task is turned away if at least this share succeeds: there is nothing left to learn."""

    @model_validator(mode="after")
    def _has_a_range(self) -> "SynthesisConfig":
        if self.solved_above >= self.solved_below:
            raise ValueError(f"solved_above is {self.solved_above}, not below solved_below, {self.solved_below}")
        return self
