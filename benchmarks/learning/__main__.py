"""`python -m benchmarks.learning NAME [--short] --json PATH [--figure PATH]`.

Every arm is a lake of its own under FLYWHEEL_HOME/benchmarks/learning: a run that was cut short goes on where it stood.
Only `ablation` needs none.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.learning import (
    ablation,
    continual,
    curriculum,
    merge,
    passk,
    rl,
    scaling,
    streaming,
    thoughts,
)
from benchmarks.learning._start import SHORT
from benchmarks.shared.report import add_options

NAMES: dict[str, Callable[[argparse.Namespace], int]] = {
    "rl": rl.run,
    "passk": passk.run,
    "ablation": ablation.run,
    "continual": continual.run,
    "curriculum": curriculum.run,
    "scaling": scaling.run,
    "merge": merge.run,
    "streaming": streaming.run,
    "thoughts": thoughts.run,
}
USUAL = {"seeds": 3, "start": 4, "iterations": 3, "test_seeds": 40}
OWN = {
    "rl": {"iterations": 6, "test_seeds": 100},
    "ablation": {"seeds": 5},
    "curriculum": {"seeds": 5, "iterations": 8},
    "continual": {"start": 1, "test_seeds": 50},
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
        epilog="--short: one training seed on the fake sandbox, few trajectories.",
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
        help="training seeds per arm (3; ablation, curriculum: 5); curriculum: or which, `21,22`",
    )
    parser.add_argument(
        "--environment", choices=list(curriculum.SETTINGS), help="curriculum: only this one; continual: where (fake)"
    )
    parser.add_argument("--parent", choices=continual.PARENTS, help="continual: train from this one only")
    parser.add_argument("--start", type=int, help="supervised iterations before the arms part (4; continual: 1)")
    parser.add_argument(
        "--iterations", type=int, help="of each arm; passk: of each half (3; rl: 6; curriculum: 8 after --start)"
    )
    parser.add_argument("--test-seeds", type=int, help="test seeds per task (40; rl: 100)")
    parser.add_argument(
        "--attempts", type=int, default=8, help="trajectories per test seed where trajectories are drawn"
    )
    parser.add_argument("--most", type=float, default=0.5, help="passk: the champion succeeds in at most this share")
    parser.add_argument("--figure", type=Path, help="where to write a PNG")
    options = add_options(parser).parse_args(arguments)
    for field, usual in (USUAL | OWN.get(options.name, {})).items():
        setattr(options, field, getattr(options, field) or usual)
    if isinstance(options.seeds, str) and options.name != "curriculum":
        parser.error("--seeds: only curriculum takes the names of seeds; give a number of them")
    if options.short:
        options.seeds, options.start, options.iterations, options.test_seeds = 1, 1, 1, 6
        options.attempts, options.most = 4, 1.0
        options.overrides = [*SHORT, *options.overrides]
    return options


if __name__ == "__main__":
    sys.exit(main())
