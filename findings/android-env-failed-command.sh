#!/usr/bin/env bash
# android-env 1.2.3 (PyPI), which AndroidWorld uses, 2026-11-30.
# Guess: a command in a phone's shell that ends with status 1, such as `grep` without a match, gives an `AdbResponse`
#   with the status ADB_ERROR, as its proto says. The adb server is not touched.
# What happens: the controller ends the adb server (`kill-server`), starts another one, runs the command a second time
#   and then raises AdbControllerError, which the parser does not turn into a response. The adb server
#   is shared by all programs of a machine, so one phone's failed `grep` disconnects every other phone's session.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q android-env==1.2.3
cat > "$folder/adb" <<'SH'
#!/bin/sh
echo "$@" >> "$LOG"
case "$*" in *grep*) exit 1;; esac
SH
chmod +x "$folder/adb"
export LOG="$folder/log" ADB="$folder/adb"
"$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import os
import sys
from pathlib import Path

from android_env.components import adb_call_parser, adb_controller, config_classes
from android_env.proto import adb_pb2

config = config_classes.AdbControllerConfig(adb_path=os.environ["ADB"], device_name="emulator-5554")
parser = adb_call_parser.AdbCallParser(adb_controller.AdbController(config))
log = Path(os.environ["LOG"])
log.write_text("")
request = adb_pb2.AdbRequest(generic=adb_pb2.AdbRequest.GenericRequest(args=["shell", "grep wanted /sdcard/notes"]))
try:
    outcome = f"status {parser.parse(request).status}"
except Exception as error:
    outcome = type(error).__name__
calls = [" ".join(word for word in line.split() if not word.isdigit()) for line in log.read_text().splitlines()]
print(*calls, outcome, sep="\n")
ran = sum("grep" in one for one in calls)
sys.exit((outcome, ran, any("kill-server" in one for one in calls)) != ("AdbControllerError", 2, True))
PYTHON
