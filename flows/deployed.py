"""Define the flows that a Prefect server runs, with small parameters for Prefect's form.

A deployment names a config (a file or a profile) and overrides of its keys, like the command line. The run reads the
config on its own machine. Prefect's form shows the texts under `Args`. Each flow calls the flow of the same name as a
plain function, so no flow starts another.
"""

from typing import Annotated

from prefect import State, flow
from pydantic import Field

from flows import data, policies
from flows import flywheel as iterating
from schemas.config import load_config
from schemas.config.form import override_pattern
from tasks.measure import Measured
from tasks.preflight.unused_keys import refuse_unrepeated
from tasks.quality import Passed
from tasks.running.budget import Exhausted, Pause
from tasks.running.console import print_line
from tasks.running.run import open_run, run_name
from tasks.watch import Due, answered, answering, watch_lake

ConfigName = str
Override = Annotated[str, Field(pattern=override_pattern())]
"""An override; the form and the server refuse a key that the config does not have."""
Overrides = list[Override]
Iterations = Annotated[int, Field(ge=1, le=1000)]
Ended = State[Pause | Exhausted] | None
"""Reason that ended a run between two stages, if any."""
PolicyName = Annotated[str, Field(min_length=1)]


@flow(name="flywheel", flow_run_name=run_name, persist_result=False)
def flywheel(
    config: ConfigName = "",
    overrides: Overrides = [],
    iterations: Iterations = 1,
) -> Ended:
    """Runs iterations. An interrupted iteration is finished first and counts as one of them.

    Args:
        config: a config file, or a profile such as laptop; empty for flywheel.toml in the folder of runs, else laptop.
        overrides: config keys, one per line, such as train.steps=100.
        iterations: number of iterations.
    """
    return iterating.flywheel.fn(load_config(config or None, overrides), iterations)


@flow(name="collect", flow_run_name=run_name, persist_result=False)
def collect(config: ConfigName = "", overrides: Overrides = []) -> Ended:
    """Rolls out and filters the trajectories of the next iteration; trains nothing.

    Args:
        config: a config file, or a profile such as laptop; empty for flywheel.toml in the folder of runs, else laptop.
        overrides: config keys, one per line, such as train.steps=100.
    """
    return iterating.collect.fn(load_config(config or None, overrides))


@flow(name="retrain", flow_run_name=run_name, persist_result=False)
def retrain(config: ConfigName = "", overrides: Overrides = [], like: str = "", after: str = "") -> str | Ended:
    """Trains, evaluates and promotes a policy from pinned data versions; collects nothing.

    Args:
        config: a config file, or a profile such as laptop; empty for flywheel.toml in the folder of runs, else laptop.
        overrides: config keys, one per line, such as train.steps=100.
        like: a policy version whose training is repeated; empty to train on the current data.
        after: the latest policy version at the time of the request. The run ends without training if a newer version
            exists. Empty to train in any case.
    """
    resolved = load_config(config or None, overrides)
    if like:
        refuse_unrepeated(overrides)
    if after and (newer := answered(resolved, after)):
        print_line(f"retrain: {newer} was trained since this was asked for, after {after}")
        return None
    with answering(resolved):
        return policies.retrain.fn(resolved, like or None)


@flow(name="quality", flow_run_name=run_name, persist_result=False)
def quality(config: ConfigName = "", overrides: Overrides = []) -> Passed:
    """Checks every table of the latest iteration. A failed run names the rows.

    Args:
        config: a config file, or a profile such as laptop; empty for flywheel.toml in the folder of runs, else laptop.
        overrides: config keys, one per line, such as train.steps=100.
    """
    return data.quality.fn(load_config(config or None, overrides))


@flow(name="evaluate", flow_run_name=run_name, persist_result=False)
def evaluate(config: ConfigName = "", overrides: Overrides = [], policy: PolicyName = "champion") -> Measured:
    """Measures a policy on held-out seeds; changes nothing.

    Args:
        config: a config file, or a profile such as laptop; empty for flywheel.toml in the folder of runs, else laptop.
        overrides: config keys, one per line, such as train.steps=100.
        policy: champion, or a policy version.
    """
    found = policies.evaluate.fn(load_config(config or None, overrides), policy)
    print_line(f"{found.policy}: success {found.rates.text}")
    return found


@flow(name="watch", flow_run_name=run_name, persist_result=False)
def watch(config: ConfigName = "", overrides: Overrides = []) -> dict[str, Due]:
    """Counts the new data since the last training, and requests a retraining if there is enough (`[triggers]`).

    Args:
        config: a config file, or a profile such as laptop; empty for flywheel.toml in the folder of runs, else laptop.
        overrides: config keys, one per line, such as train.steps=100.
    """
    resolved = load_config(config or None, overrides)
    with open_run(resolved, create=False):
        return watch_lake(resolved)


@flow(name="maintain", flow_run_name=run_name, persist_result=False)
def maintain(config: ConfigName = "", overrides: Overrides = []) -> dict[str, int]:
    """Merges small files of the lake, and removes files that no version needs.

    Args:
        config: a config file, or a profile such as laptop; empty for flywheel.toml in the folder of runs, else laptop.
        overrides: config keys, one per line, such as train.steps=100.
    """
    return data.maintain.fn(load_config(config or None, overrides))
