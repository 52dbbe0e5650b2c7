#!/usr/bin/env bash
# Debian's adb 29.0.6, and the protocol of an emulator's console (a stand-in below answers it), 2026-11-30.
# Guess: `adb -s emulator-5554 emu avd snapshot load NAME` fails if the emulator refuses, so that a script which resets
#   a phone between tasks by `set -e` or `check=True` stops at a snapshot that does not exist.
# What happens: the exit status is 0, and the refusal (`KO: ...`) is on standard output, where success prints nothing.
#   A benchmark that resets by snapshots then plays each task on what the task before it left.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -qq adb=1:29.0.6-28 android-libbase=1:29.0.6-28 android-libcutils=1:29.0.6-28 \
  android-liblog=1:29.0.6-28 android-libboringssl=13.0.0+r24-2 libusb-1.0-0 2>/dev/null
for package in *.deb; do dpkg -x "$package" .; done
mkdir home
cat > console.py <<'PYTHON'
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

adb = next(one for one in Path().rglob("adb") if one.is_file() and not one.is_symlink() and os.access(one, os.X_OK))
libraries = ":".join({str(one.parent.resolve()) for one in Path().rglob("*.so*")})
variables = {**os.environ, "HOME": str(Path("home").resolve()), "LD_LIBRARY_PATH": libraries}
server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]


def console():
    while True:
        client, _ = server.accept()
        with client:
            client.sendall(b"Android Console: type 'help' for a list of commands\r\nOK\r\n")
            for line in client.makefile("r"):
                if line.strip() == "quit":
                    break
                client.sendall(b"KO: no such snapshot\r\n" if "gone" in line else b"OK\r\n")


threading.Thread(target=console, daemon=True).start()
print(subprocess.run([str(adb), "version"], env=variables, capture_output=True, text=True).stdout.split("\n")[1])
found = []
for name in ("clean", "gone"):
    command = [str(adb), "-s", f"emulator-{port}", "emu", "avd", "snapshot", "load", name]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=30)
    found.append((done.returncode, done.stdout.strip(), done.stderr))
    print(f"load {name}: exit status {done.returncode}, output {done.stdout!r}, errors {done.stderr!r}")
sys.exit(found != [(0, "", ""), (0, "KO: no such snapshot", "")])
PYTHON
python3 console.py
