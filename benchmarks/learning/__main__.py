"""Run one benchmark of learning: `python -m benchmarks.learning NAME [--short] --json PATH`.

Every arm is a lake of its own under FLYWHEEL_HOME/benchmarks/learning, so an interrupted run resumes there.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from benchmarks.harness import add_options
from benchmarks.learning import curriculum, merge, methods, rl, scaling, streaming
from benchmarks.learning._start import SHORT

NAMES: dict[str, Callable[[argparse.Namespace], int]] = {
    "rl": rl.run,
    "methods": methods.run,
    "curriculum": curriculum.run,
    "scaling": scaling.run,
    "merge": merge.run,
    "streaming": streaming.run,
}
USUAL = {"seeds": 3, "start": 4, "iterations": 3, "test_seeds": 40}
OWN = {
    "rl": {"iterations": 6, "test_seeds": 100},
    "methods": {"seeds": 5, "start": 1, "iterations": 2},
    "curriculum": {"seeds": 5, "iterations": 8},
}
"""What differs from the usual unless asked otherwise."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one benchmark; exit code 1 if a bar is missed."""
    options = _options(arguments)
    return NAMES[options.name](options)


def _seeds(text: str) -> int | str:
    """A number of seeds, or their names with commas between."""
    return text if "," in text else int(text)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    described = "\n\n".join(f"{name}: {sys.modules[made.__module__].__doc__}" for name, made in NAMES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning",
        description=described,
        epilog="--short: one run seed on the fake sandbox, few trajectories.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=list(NAMES))
    parser.add_argument(
        "overrides", nargs="*", metavar="section.key=value", help="changes to the config, for every arm"
    )
    parser.add_argument("--config", default="configs/miniwob.toml")
    parser.add_argument(
        "--seeds",
        type=_seeds,
        help="run seeds per arm (3; methods, curriculum: 5); for these two also which, `21,22`",
    )
    parser.add_argument("--arms", nargs="+", choices=methods.ARMS, help="methods: only these arms")
    parser.add_argument("--environment", choices=list(curriculum.SETTINGS), help="curriculum: only this one")
    parser.add_argument("--start", type=int, help="supervised iterations before the arms part (4; methods: 1)")
    parser.add_argument(
        "--iterations", type=int, help="of each arm (3; rl: 6; methods: 2; curriculum: 8 after --start)"
    )
    parser.add_argument("--test-seeds", type=int, help="test seeds per task (40; rl: 100)")
    parser.add_argument(
        "--attempts", type=int, default=8, help="trajectories per test seed where trajectories are drawn"
    )
    options = add_options(parser).parse_args(arguments)
    for field, usual in (USUAL | OWN.get(options.name, {})).items():
        setattr(options, field, getattr(options, field) or usual)
    if isinstance(options.seeds, str) and options.name not in ("curriculum", "methods"):
        parser.error("--seeds: only curriculum and methods take the names of seeds; give a number of them")
    if options.short:
        options.seeds, options.start, options.iterations, options.test_seeds = 1, 1, 1, 6
        options.attempts = 4
        options.overrides = [*SHORT, *options.overrides]
    return options


if __name__ == "__main__":
    sys.exit(main())
