"""Define the sections of curation: `filter`, `judge`, `annotate`, `reflect`, `think` and `synthesis`."""

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
    """Gates in order, each by name or as `my_package.my_gate:MyGate`. The first gate that rejects a trajectory decides.
    `environment` comes first, because any other gate would blame the policy for a sandbox's failure. Without `verifier`
    a failure passes, unless your own gate rejects it. Without `judge` a judged trajectory keeps the judge's result from
    its collection."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Keys of each gate, under its name: `filter.options.loops.max_repeats`."""
    prefixes: Literal["none", "people", "all"] = "people"
    """Authors who can mark a wrong step so that training imitates the steps before it: `none`, `people`, or `all`
    (people and gates). A gate cannot know if the earlier steps were useful. With `all`, training imitates all steps
    except the last of a failure that its verifier rejected."""
    corrections: Literal["all", "verified"] = "all"
    """Reviewers' corrections that training uses. `all`: every correction, except corrections that a sandbox refuted and
    unverified corrections of a verified success. `verified`: only corrections that succeeded in a sandbox
    (docs/annotate.md)."""


class JudgeConfig(PartsSection):
    """The judge that scores trajectories of tasks whose environment has no verifier."""

    parts = "models.judges.registry:kind_of"
    read_if = (ReadIf("judge.kind"),)

    kind: str = "none"
    """`endpoint`: a model behind OpenAI's chat completions. `local`: a network from `flywheel judge --train`. `fake`:
    for tests. Or `my_package.my_judge:MyJudge`."""
    options: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """Keys of the judge. `endpoint`: `url`, `model`, `key_variable` (the environment variable with the API key,
    FLYWHEEL_JUDGE_KEY if not set), `timeout_s`, `temperature` and `concurrency`. `local`: `checkpoint`, its folder."""
    threshold: Share = 0.5
    """Minimum score of a success. In groups the scores themselves are the rewards."""
    screens: Count = 5
    """Number of latest screens that the judge sees (UI-TARS-2: 5)."""
    tries: Count = 2
    """Failures of the judge on a trajectory after which the trajectory is an environment failure."""
    votes: Count = 1
    """Votes of the judge per trajectory. All votes must accept it: the score is the lowest. If votes err independently,
    the rate of n false votes is the n-th power of the rate of one false vote (ZeroGUI, arXiv 2505.23762: 4 at
    temperature 1)."""
    pairwise: bool = False
    """Keep a preference between two trajectories of a task without a verifier only if the judge prefers the same
    trajectory in both orders (Seed1.5-VL, arXiv 2505.07062)."""
    audit: Whole = 40
    """Trajectories per iteration, of tasks with a verifier, on which the judge's accuracy is measured. These judgements
    change nothing else."""
    evidence_min: Whole = 100
    """Minimum number of the judge's verdicts that were compared with verifiers or people; with fewer, the judge is on
    probation. The rejections of a judge on probation count, and the trajectories that it accepts are held back. 100
    verdicts, two thirds of them on failures, distinguish a false accept rate of 0.1 from one of 0.2. A fifth must be on
    failures, because only failures measure false accepts. 0 trusts the judge without evidence."""
    kappa_min: Share = 0.6
    """Minimum agreement (Cohen's kappa); a judge below it is on probation. Landis and Koch (1977) call an agreement
    above 0.6 substantial."""
    false_accept_max: Share = 0.1
    """Maximum share of failures that the judge accepts; a judge above it is on probation, because training would learn
    an error from each of these failures."""


PerceptionKind = Literal["description", "caption", "question", "marks", "transition"]


class AnnotateConfig(Section):
    """Perception data from screens, independent of the actions on them (docs/perception.md)."""

    read_if = (ReadIf("annotate.perception", keys=("screens", "per_screen")),)

    perception: tuple[PerceptionKind, ...] = ("description", "caption", "question", "marks", "transition")
    """Kinds of perception data to make. `train.perception` and `train.ct.perception` set their share in training."""
    screens: Count = 100
    """Screens per iteration that perception data is made from, sampled by their content."""
    per_screen: Count = 2
    """Descriptions, questions and mark questions per screen. Each screen has one caption."""
    reader: str = "page"
    """Source of elements for screens whose environment lists none. `page`: no source. `rapidocr`: text recognized from
    the pixels (the extra `ocr`). Or a dotted path to a `models.readers.ScreenReader`."""


class VideoConfig(Section):
    """Screen recordings: their import, and questions about changes over time (docs/video.md)."""

    read_if = (ReadIf("video.questions", keys=("clip_s", "trajectories")),)

    fps: Annotated[float, Field(gt=0.0, le=30.0)] = 2.0
    """Frames per second that an import compares. It keeps a frame if the screen has changed. Steps of an event log have
    their own frames."""
    max_seconds: Annotated[float, Field(gt=0.0, lt=86_400.0)] = 7200.0
    """Maximum duration of an imported recording, in seconds. An hour of 1280 x 720 pixels at 30 frames per second takes
    some minutes."""
    questions: Whole = 8
    """Maximum questions about each recording; 0 for none."""
    clip_s: Annotated[float, Field(ge=2.0)] = 30.0
    """Maximum seconds of a recording that a question shows."""
    trajectories: Whole = 0
    """Trajectories per iteration of which a recording is made, sampled by their ids. `train.video` sets the share of
    the questions in training."""


class GeneralConfig(Section):
    """General questions about images, against forgetting (docs/general.md)."""

    read_if = (ReadIf("general.samples"),)

    samples: str = ""
    """JSON Lines or Parquet file with `image`, `question` and `answer`, relative to the working directory of the
    command. `train.general` sets the questions' share in training."""
    held_out: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    """Share of the images whose questions are measured and never trained on."""
    measured: Count = 200
    """Maximum held-out questions of a measurement."""
    max_drop: Share = 0.05
    """Maximum drop of the success on held-out questions in a training. A training forgets if the whole 95 % interval of
    the change is a larger drop."""
    on_drop: Literal["report", "reject"] = "report"
    """`report`: only report forgetting. `reject`: reject the candidate, without rolling out its evaluation."""


class ReflectConfig(PartsSection):
    """Corrections of failed trajectories. Each must succeed in a sandbox before it is trained on (docs/reflect.md)."""

    parts = "models.proposers:PROPOSERS.read"
    read_if = (ReadIf("reflect.on", (), ("trajectories", "steps", "recover", "proposers", "options"), refused=False),)

    on: bool = False
    """Correct an iteration's failures. For methods that imitate or prefer: `sft`, `rft`, `dpo`."""
    trajectories: Count = 100
    """Maximum failed trajectories per iteration to correct: the policy's own before the explorer's, the tasks in
    turn."""
    steps: Count = 1500
    """Maximum sandbox steps per iteration, replayed steps included."""
    attempts: Count = 8
    """Attempts at a state before an earlier state is tried. More attempts find rarer corrections and cost more
    steps."""
    ahead: Count = 3
    """Maximum steps of a correction, the corrected step included. A correction that needs many more steps corrects
    another step."""
    people: bool = True
    """Try reviewers' corrections in a sandbox, at most `attempts` times each, before training uses them. This key does
    not need `reflect.on`. It costs sandbox steps only if there are corrections to try."""
    recover: bool = True
    """Also repeat the error in a sandbox and recover from it, if the error did not end the trajectory."""
    proposers: Annotated[tuple[str, ...], Field(min_length=1)] = ("policy", "precedent")
    """Proposers of corrections, in turn: `policy` (the champion at a higher temperature, once a trained policy exists),
    `precedent` (successful actions of the task on other seeds, applied to similar elements; else the explorer),
    `explorer` (untried elements of the page), `endpoint` (a served model), or `my_package.my_proposer:MyProposer`."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Keys of each proposer, under its name: `reflect.options.endpoint.url`."""


class ThinkConfig(PartsSection):
    """Thoughts for accepted steps that have none (docs/thoughts.md)."""

    parts = "models.thinkers.thinker:THINKERS.read"
    read_if = (ReadIf("policy.thoughts", keys=("keep_without",)),)

    thinkers: tuple[str, ...] = ("template",)
    """Thinkers in order; the first thought that is kept is used. `policy`: the champion, which does not see the action;
    a thought is kept if it led to the same action. `endpoint`: a served model, which may see the action. `rules`:
    sentences made from the page's elements. `template`: a few words for each kind of action. Or
    `my_package.my_thinker:MyThinker`. Empty: steps stay without a thought."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Keys of each thinker, under its name: `think.options.endpoint.url`."""
    tries: Count = 4
    """Maximum requests to a model per step, until a thought is kept."""
    most: Count = 20_000
    """Maximum requests to models per iteration, all tries counted. The remaining steps go to the next thinker."""
    longest: Annotated[int, Field(ge=20)] = 800
    """Maximum characters of a thought; a longer thought is rejected."""
    keep_without: Share = 0.0
    """Share of the trajectories that supervised training reads without their thoughts, under the prompt that asks for
    the action alone. A policy trained this way can act either way (`policy.thoughts`)."""


class SynthesisConfig(PartsSection):
    """Synthesis of tasks from existing tasks. Each is verified before it is trained on (docs/synthesis.md)."""

    parts = "curation.synthesis.making:makers_of"
    read_if = (ReadIf("synthesis.on", refused=False),)

    on: bool = False
    """Start every iteration with synthesis; `flywheel tasks synthesize` runs it once. Accepted tasks are rolled out
    either way."""
    makers: Annotated[tuple[str, ...], Field(min_length=1)] = ("compose", "vary", "harden", "obfuscate", "chain")
    """Task makers: any of the defaults, `endpoint` (a served model), or `my_package.my_maker:MyMaker`. All but
    `compose` need an environment with linked pages, such as `site`."""
    proposals: Count = 20
    """Proposals per maker, environment and iteration."""
    reward: str = "reader"
    """Author of the rewards. It reads only the instruction. `reader` (for instructions of the built-in makers),
    `endpoint`, or `my_package.my_reward:MyReward`."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Keys of each maker, under its name, and of the reward's author under `reward`."""
    near_misses: Count = 3
    """Minimum number of near-miss states that a reward must reject. A near miss differs slightly from the golden
    state."""
    max_steps: Annotated[int, Field(ge=1, le=1000)] = 100
    """Maximum step limit of a made task. A task is rejected if an undirected player needs more steps, with a margin, in
    any of several trajectories."""
    solver: Literal["explorer", "champion"] = "explorer"
    """Policy that tries accepted tasks."""
    tries: Whole = 8
    """Tries per task; with 0 a task is not tried, and success is not required."""
    solved_above: Share = 0.0
    """A task is rejected if at most this share of its tries succeeds: the policy could not learn from it yet."""
    solved_below: Share = 1.0
    """A task is rejected if at least this share of its tries succeeds: the policy has nothing left to learn."""

    @model_validator(mode="after")
    def _has_a_range(self) -> "SynthesisConfig":
        if self.solved_above >= self.solved_below:
            raise ValueError(f"solved_above is {self.solved_above}, not below solved_below, {self.solved_below}")
        return self
