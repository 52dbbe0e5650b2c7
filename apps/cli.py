"""The `flywheel` command: one thin function per verb, and how errors reach a person."""

import sys

import typer

from apps import doctor, lineage, policies, run, status
from apps.environment import settle
from apps.report import verb as report
from schemas.failure import FlywheelError

app = typer.Typer(
    help="A data flywheel for GUI agents: play, judge, train, measure, promote, and again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (run.run, status.status, report.report, doctor.doctor, lineage.lineage):
    app.command()(verb)
for verb in (policies.evaluate, policies.retrain, policies.export):
    app.command()(verb)


def main() -> None:
    """The console entry: 0 ok, 1 error, 2 usage, 3 gate refused."""
    settle()
    try:
        app()
    except FlywheelError as error:
        sys.stderr.write(f"flywheel: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
