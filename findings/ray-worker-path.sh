#!/usr/bin/env bash
# ray 2.60.0 (PyPI); 2026-11-27.
#
# A driver is started by `python -P` and with PYTHONSAFEPATH=1, and its workers get PYTHONSAFEPATH=1 by runtime_env:
# sys.flags.safe_path is true in both. The script is in another folder than the one in which it is started.
# An expert would guess: neither the driver nor a task imports a module from the current folder.
# What happens: the driver does not, but a task has the driver's current folder first on its path. A `data.py` there hides
# an installed package of that name, but only in the workers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ray==2.60.0
mkdir "$folder/scripts" "$folder/current"
echo 'WHERE = "the current folder"' >"$folder/current/data.py"
cat >"$folder/scripts/driver.py" <<'PYTHON'
import importlib.util
import os
import sys

import ray


def found() -> tuple[bool, bool]:
    return sys.flags.safe_path, importlib.util.find_spec("data") is not None


here = found()
environ = {"env_vars": {"PYTHONSAFEPATH": "1"}}
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False, runtime_env=environ)
there = ray.get(ray.remote(found).remote())
path = ray.get(ray.remote(lambda: sys.path[0]).remote())
ray.shutdown()
print(f"safe path, module found: driver {here}, task {there}; the task's path begins with the current folder:",
      os.path.realpath(path) == os.path.realpath(os.getcwd()))
sys.exit((here, there) != ((True, False), (True, True)))
PYTHON
cd "$folder/current"
RAY_raylet_start_wait_time_s=120 PYTHONSAFEPATH=1 "$folder/venv/bin/python" -P "$folder/scripts/driver.py"
