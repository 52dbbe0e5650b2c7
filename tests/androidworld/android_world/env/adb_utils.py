"""What the worker asks AndroidWorld about apps."""

from typing import Any

ACTIVITIES = {"lamps": "org.lamps/.Main", "absent": "org.absent/.Main"}


def set_root_if_needed(env: Any) -> None:
    env.note("root")


def get_adb_activity(app: str) -> "str | None":
    return ACTIVITIES.get(app)


def get_all_package_names(env: Any) -> list[str]:
    return env.state["packages"]


def get_all_apps(env: Any) -> list[str]:
    return ["lamps"]


def launch_app(app: str, env: Any) -> None:
    if app not in ACTIVITIES and app not in env.state["packages"]:
        raise RuntimeError("No activities found to run")
    env.note(f"open {app}")
