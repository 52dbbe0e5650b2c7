"""`flywheel serve-sandboxes`: our environments for whoever trains elsewhere."""

from typing import Annotated

import typer

from apps.options import ConfigFile, Overrides, resolve, task_names

Tasks = Annotated[str | None, typer.Option("--tasks", metavar="A,B,C", help="Tasks; the suite if not given.")]


def serve_sandboxes(
    overrides: Overrides = None,
    config: ConfigFile = None,
    host: Annotated[str, typer.Option(help="Where to listen; on another host a token is required.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8000,
    token_variable: Annotated[
        str, typer.Option(metavar="NAME", help="The environment variable that holds the token.")
    ] = "FLYWHEEL_SANDBOXES_TOKEN",
    tasks: Tasks = None,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Serve held-out tasks and seeds, too: to measure, not to train.")
    ] = False,
    idle_s: Annotated[
        float, typer.Option(min=1.0, help="Seconds after which a session that sends nothing is ended.")
    ] = 900.0,
) -> None:
    """Serve sandboxes on OpenEnv's wire: a session is a lease, for trainers and agents elsewhere."""
    from apps.sandboxes.serve import serve_sandboxes as answer

    answer(resolve(config, overrides), host, port, token_variable, task_names(tasks), held_out, idle_s)


VERBS = (serve_sandboxes,)
