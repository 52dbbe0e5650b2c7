"""Define the verbs of the command line. Each imports its modules when it is called, so that help is fast."""

import webbrowser
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from apps import completion
from apps.commands import checkpoint, data, pretraining, quality, sandboxes, synthesis, trajectories, versions
from apps.commands.capacity import plan
from apps.commands.parsing import parse
from apps.commands.upkeep import doctor, init, maintain, pause, resume, upgrade
from apps.options import (
    AsJson,
    ConfigFile,
    LicenseName,
    Overrides,
    Tasks,
    config_or_last,
    iteration_range,
    numbers,
    open_lake,
    print_json,
    print_result,
    resolve,
    seed_range,
    sweep_exports,
    task_names,
)
from apps.schedule import verbs as scheduling
from schemas.failure import UsageError

TaskName = Annotated[
    str,
    typer.Argument(
        metavar="TASK", help="A task's id or template, such as click-test.", autocompletion=completion.tasks
    ),
]
Iterations = Annotated[
    int | None,
    typer.Option(min=1, help="Number of iterations, an unfinished iteration included; the config's if not given."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan, and do nothing.")]
Name = Annotated[
    str,
    typer.Argument(
        metavar="POLICY|TASK|TRAJECTORY_ID",
        help="A version, champion, a task, or a trajectory's id.",
        autocompletion=completion.policies,
    ),
]
PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        help="champion, a version, a Hugging Face folder, or explorer.",
        autocompletion=completion.policies,
    ),
]
Range = Annotated[
    str | None, typer.Option("--iterations", metavar="A:B", help="Iterations from A to B - 1; all if not given.")
]
Seeds = Annotated[str | None, typer.Option("--seeds", metavar="A:B", help="Held-out seeds from A to B - 1.")]
WATCH_S = 2.0
"""Seconds between two updates of `flywheel status --watch`."""


def run(
    overrides: Overrides = None,
    config: ConfigFile = None,
    iterations: Iterations = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Run flywheel iterations, resuming the lake's last one."""
    config = config_or_last(config)
    resolved = resolve(config, overrides)
    if dry_run:
        from apps.commands.plan import plan_of, show_plan
        from apps.process import SPENT_NOTHING, Interrupts

        Interrupts.kept = SPENT_NOTHING
        plan = plan_of(resolved, iterations or resolved.iterations)
        print_result(as_json, plan, lambda: show_plan(plan))
        return
    from apps.commands.run import require_collected, show_turned, turn

    page, pause = turn(resolved, iterations or resolved.iterations, config)
    show_turned(resolved, page, as_json)
    if pause:
        raise pause.refusal()
    require_collected(resolved)


def collect(overrides: Overrides = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Roll out and filter the next iteration's trajectories, here or on a cluster; train nothing."""
    from apps.commands.run import collect as collect_next
    from apps.commands.run import require_collected, show_collected

    config = config_or_last(config)
    resolved = resolve(config, overrides)
    collected = collect_next(resolved, config)
    show_collected(collected, as_json)
    if collected.pause:
        raise collected.pause.refusal()
    require_collected(resolved)


def status(
    overrides: Overrides = None,
    config: ConfigFile = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every two seconds, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show iterations, success, data and the champion."""
    from apps.commands.status import show_status, status_of, watch_status

    if watch and as_json:
        raise UsageError("`--watch` is for people, and `--json` for programs.", "Give one of the two.")
    lake = open_lake(resolve(config, overrides))
    if watch:
        watch_status(lake, WATCH_S)
    elif as_json:
        print_json(status_of(lake))
    else:
        show_status(lake)


def report(
    overrides: Overrides = None,
    config: ConfigFile = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the report page and print its path."""
    from apps.report.build import build_report

    page = build_report(resolve(config, overrides))
    print_result(as_json, {"report": str(page), "bytes": page.stat().st_size}, str(page))
    if open_it:
        webbrowser.open(page.as_uri())


def lineage(name: Name, overrides: Overrides = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show the sources of a policy or a task, or the policies that a trajectory went into."""
    from apps.commands.lineage import lineage_of, show_lineage

    found = lineage_of(open_lake(resolve(config, overrides)), name)
    print_result(as_json, found.as_dict, lambda: show_lineage(found))


def evaluate(
    overrides: Overrides = None,
    config: ConfigFile = None,
    policy: PolicyName = "champion",
    tasks: Tasks = None,
    seeds: Seeds = None,
    attempts: Annotated[
        int, typer.Option(min=1, help="Trajectories per seed: 1 is greedy, more are sampled as in collection.")
    ] = 1,
    each: Annotated[
        bool,
        typer.Option("--trajectories", "--plays", help="With --json: list every trajectory's task, seed and success."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a policy on held-out seeds, without changing the champion."""
    from apps.commands.policies import measure, measured_as_json, show_measured
    from apps.commands.run import report_left_out

    if each and not as_json:
        raise UsageError("`--trajectories` lists them in JSON.", "Add --json.")
    resolved = resolve(config, overrides)
    report_left_out(resolved)
    measured = measure(resolved, policy, task_names(tasks), seed_range(seeds), attempts)
    print_result(as_json, measured_as_json(measured, attempts, each), lambda: show_measured(measured))


def refilter(
    overrides: Overrides = None, config: ConfigFile = None, iterations: Range = None, as_json: AsJson = False
) -> None:
    """Run the configured gates over stored trajectories, without rolling out again, and show the changes."""
    from apps.commands.curation import changes_as_json, show_changes
    from apps.commands.curation import refilter as filter_again

    found = filter_again(resolve(config, overrides), iteration_range(iterations))
    print_result(as_json, changes_as_json(found), lambda: show_changes(found))


def think(
    overrides: Overrides = None, config: ConfigFile = None, iterations: Range = None, as_json: AsJson = False
) -> None:
    """Write thoughts for stored steps with the configured thinkers, except steps that have one."""
    from apps.commands.curation import show_thoughts, think_of_stored

    found = think_of_stored(resolve(config, overrides), iteration_range(iterations))
    print_result(as_json, found.model_dump(), lambda: show_thoughts(found))


def retrain(
    overrides: Overrides = None,
    config: ConfigFile = None,
    like: Annotated[
        str | None,
        typer.Option(
            help="Repeat the data, parent, config and seed of this version.", autocompletion=completion.policies
        ),
    ] = None,
    train_only: Annotated[
        bool, typer.Option("--train-only", help="Neither evaluate nor promote; needs no environment.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Train, evaluate and promote from pinned data, without collecting."""
    from apps.commands.policies import retrain_policy
    from tasks.preflight.unused_keys import refuse_unrepeated

    resolved = resolve(config, overrides)
    if like:
        refuse_unrepeated(overrides or ())
    if dry_run:
        from apps.commands.plan import retrain_plan_of, show_retrain_plan
        from apps.process import SPENT_NOTHING, Interrupts

        Interrupts.kept = SPENT_NOTHING
        plan = retrain_plan_of(resolved, open_lake(resolved), like, train_only)
        print_result(as_json, plan, lambda: show_retrain_plan(plan))
        return
    done = retrain_policy(resolved, like, train_only)
    print_result(as_json, done.as_dict, done.line)


def adopt(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A Hugging Face model directory, in safetensors.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    name: Annotated[str | None, typer.Option(help="Version of the policy; adopted-NNNN if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Import a checkpoint from elsewhere into the lake, evaluate it, and let it challenge the champion, if any."""
    from apps.commands.policies import adopt_policy

    done = adopt_policy(resolve(config, overrides), directory, name)
    print_result(as_json, done.as_dict, done.line)


def merge(
    named: Annotated[
        list[str],
        typer.Argument(
            metavar="POLICY POLICY... [KEY=VALUE]...",
            help="Versions, then config keys.",
            autocompletion=completion.policies_or_keys,
        ),
    ],
    config: ConfigFile = None,
    weights: Annotated[str | None, typer.Option(metavar="A,B,...", help="Weights; searched for if not given.")] = None,
    parts: Annotated[int, typer.Option(min=1, help="The search tries multiples of 1 / parts.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Interpolate policies that were trained from one parent, with weights searched by held-out success."""
    from apps.commands.policies import merge_policies

    policies, overrides = versions.apart(named)
    done, noted = merge_policies(resolve(config, overrides), policies, numbers(weights, "--weights"), parts)
    text = ", ".join(f"{share:.2f} {name}" for name, share in noted["merged"].items())
    print_result(as_json, done.as_dict | noted, f"{done.line}; {text}")


def export(
    policy: Annotated[str, typer.Option("--policy", help="champion or a version.", autocompletion=completion.policies)],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new or empty folder.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    license_name: LicenseName = "",
    as_json: AsJson = False,
) -> None:
    """Copy a policy into a folder that plain transformers loads, with a card."""
    from apps.commands.policies import export_policy

    sweep_exports(to)
    version = export_policy(open_lake(resolve(config, overrides)), policy, to, license_name)
    print_result(as_json, {"policy": version, "directory": str(to.absolute())}, f"{version} is in {to}")


def judge(
    overrides: Overrides = None,
    config: ConfigFile = None,
    version: Annotated[str | None, typer.Option(help="Version of the judge; the config's if not given.")] = None,
    train: Annotated[
        str | None, typer.Option(metavar="NAME", help="Train this judge from verified trajectories.")
    ] = None,
    iterations: Annotated[
        str | None, typer.Option(metavar="A:B", help="Iterations from A to B - 1; all if not given.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge stored trajectories again, in batches, and report the judge's accuracy and the changes."""
    from apps.commands.curation import judge_stored, judging_as_json, show_judging, show_trained, train_on

    if train is not None:
        if version is not None:
            raise UsageError("`--train` makes a judge, and `--version` names one.", "Give one of the two.")
        made = train_on(resolve(config, overrides), train, iteration_range(iterations))
        print_result(as_json, asdict(made), lambda: show_trained(made))
        return
    found = judge_stored(resolve(config, overrides), version, iteration_range(iterations))
    print_result(as_json, judging_as_json(found), lambda: show_judging(found))


def explain(task: TaskName, overrides: Overrides = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show how often each iteration rolled out a task, with the numbers and the reason."""
    from apps.commands.curation import explained, explanation, show_explanation

    found = explanation(open_lake(resolve(config, overrides)), task)
    print_result(as_json, explained(found), lambda: show_explanation(found))


Host = Annotated[str | None, typer.Option(help="Listening address; any but this machine's needs a token.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free port.")]


def desk(overrides: Overrides = None, config: ConfigFile = None, host: Host = None, port: Port = None) -> None:
    """Serve the review desk: a queue, corrections, live sessions, every trajectory step by step, the funnel."""
    _serve(overrides, config, host, port, "queue")


def serve(overrides: Overrides = None, config: ConfigFile = None, host: Host = None, port: Port = None) -> None:
    """Serve the dashboard: the lake's status and current activity; the review desk is in the same site."""
    _serve(overrides, config, host, port, "")


def _serve(overrides: Overrides, config: ConfigFile, host: str | None, port: int | None, page: str) -> None:
    from apps.desk.serve import serve as answer
    from apps.process import SERVED, Interrupts

    Interrupts.kept = SERVED
    answer(resolve(config, overrides), host, port, page)


def up(
    overrides: Overrides = None,
    config: ConfigFile = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of Prefect's server, if there is none.")] = 4200,
) -> None:
    """Start a Prefect server, a worker, all deployments and the dashboard on this machine, until Ctrl-C."""
    from apps.schedule.up import up as start

    file = config_or_last(config)
    start(resolve(file, overrides), file, overrides or (), port)


VERBS = (
    init,
    plan,
    run,
    collect,
    status,
    report,
    doctor,
    lineage,
    evaluate,
    refilter,
    think,
    retrain,
    adopt,
    merge,
    export,
    serve,
    desk,
    *sandboxes.VERBS,
    judge,
    parse,
    upgrade,
    up,
    maintain,
    pause,
    resume,
    *versions.VERBS,
)
LONG = {
    "run", "collect", "evaluate", "refilter", "think", "retrain", "adopt", "merge", "judge", "upgrade", "maintain",
    "forget", "data import", "data export", "tasks synthesize", "pretrain render", "pretrain train", "quality check",
    "environments add",
}  # fmt: skip
"""Verbs that may take minutes, which have the options `-q` and `-v`."""
GROUPS = {
    "curriculum": ("Explain the task mix of the next iteration.", (explain,)),
    "schedule": ("Schedule deployments on a Prefect server.", scheduling.VERBS),
    "environments": (
        "List and install environments; alone it is `environments show`.",
        sandboxes.ENVIRONMENT_VERBS,
    ),
    "tasks": ("List tasks and make new ones from them.", synthesis.VERBS),
    "data": ("Export and import trajectories in other projects' formats.", data.VERBS),
    "pretrain": ("Make a base policy from rendered pages.", pretraining.VERBS),
    "checkpoint": ("Inspect, verify and convert checkpoints, also those of other trainers.", checkpoint.VERBS),
    "trajectories": ("Find and show trajectories; alone it is `trajectories list`.", trajectories.VERBS),
    "quality": ("Show the quality gate's results; alone it is `quality show`.", quality.VERBS),
}
"""Verbs of two words: the description of each first word, and its second ones."""
DEFAULTS = ("list", "show")


def default_word(commands: Mapping[str, Any]) -> str | None:
    """Returns the second word of a verb that is given without one: the first of `DEFAULTS` that needs no argument."""
    found = (word for word in DEFAULTS if word in commands)
    return next((word for word in found if not any(one.required for one in commands[word].params)), None)


class ShownByDefault(TyperGroup):
    """A group of verbs of two words, with a default second word."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Names the verb."""
        word = default_word(self.commands)
        if word and (not args or args[0] not in {*self.commands, *ctx.help_option_names}):
            args = [word, *args]
        return super().parse_args(ctx, args)
