"""Check that an emulator is ready for AndroidWorld, with the program adb and without changing anything."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from environments.android.environment import FIXES
from environments.programs import asked
from schemas.failure import FlywheelError

SDKS = ("~/Android/Sdk", "~/Library/Android/sdk")
"""Folders in which Android Studio installs the SDK."""
ASK_S, CONNECT_S = 15.0, 3.0
"""Seconds that adb may take to answer, and that a port may take to accept a connection."""
SERVER_PORT = 5037
"""Port of the adb server; android_env uses no other."""
TESTED_API = "33"
"""Version of Android's API with which AndroidWorld is tested by its authors."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """A running emulator.

    Args:
        key: config key of its environment, such as `environments.world`.
        adb: the program adb.
        console: port of its console, which also names it in adb's list.
        grpc: port of its gRPC service, for screenshots.
    """

    key: str
    adb: Path
    console: int
    grpc: int

    @property
    def serial(self) -> str:
        """Name of the emulator in adb's list."""
        return f"emulator-{self.console}"

    def examine(self) -> str:
        """Checks the emulator and describes it; raises FlywheelError with the key and the fix."""
        self._connected()
        if self._property("sys.boot_completed") != "1":
            raise self._error("console_ports", "is still starting", "Wait until it shows its home screen.")
        if self._property("ro.debuggable") != "1":
            raise self._error(
                "console_ports", "gives adb no root rights",
                "Make its virtual device from a system image without Google Play (`google_apis`).",
            )  # fmt: skip
        if not _listens(self.grpc):
            raise self._error(
                "grpc_ports", f"has no gRPC service at port {self.grpc}", f"Start it with `-grpc {self.grpc}`."
            )
        api = self._property("ro.build.version.sdk")
        return f"{self.serial} (API {api}{'' if api == TESTED_API else f'; AndroidWorld is made for {TESTED_API}'})"

    def _connected(self) -> None:
        if not _listens(SERVER_PORT):  # adb would start one, which no check is to do
            raise FlywheelError(
                f"`{self.key}.adb`: no adb server listens at port {SERVER_PORT}.", f"Start it: {self.adb} start-server"
            )
        state = self._states().get(self.serial, "")
        if state == "device":
            return
        fix = FIXES.get(state, "")
        if not state:
            fix = f"Start it: emulator -avd NAME -no-snapshot -port {self.console} -grpc {self.grpc}"
            if find_program("emulator", "emulator/emulator") is None:
                fix = f"Install the Android SDK's emulator and a virtual device (docs/androidworld.md). {fix}"
        raise self._error("console_ports", f"is {state or 'not running'}", fix)

    def _states(self) -> Mapping[str, str]:
        lines = self._ask("devices").splitlines()
        return {found[1]: found[2] for line in lines if (found := re.match(r"(\S+)\t(.+)", line))}

    def _property(self, name: str) -> str:
        return self._ask("-s", self.serial, "shell", f"getprop {name}").strip()

    def _ask(self, *arguments: str) -> str:
        try:
            return asked((str(self.adb), "-P", str(SERVER_PORT), *arguments), ASK_S)
        except subprocess.TimeoutExpired as error:
            raise self._error("adb", f"does not answer within {ASK_S:g} s", "Restart it, or the adb server.") from error
        except (OSError, subprocess.SubprocessError) as error:
            said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            last = said[-1][:200] if said else "no output"
            raise FlywheelError(f"`{self.key}.adb`: {self.adb} failed: {last}.", "Try `adb devices`.") from error

    def _error(self, key: str, problem: str, fix: str) -> FlywheelError:
        return FlywheelError(f"`{self.key}.{key}`: {self.serial} {problem}.", fix)


def find_program(name: str, place: str) -> Path | None:
    """Finds a program of the Android SDK: in `ANDROID_HOME`, in the usual folders, then in `PATH`; None if missing.

    Args:
        name: name in `PATH`.
        place: path in the SDK, such as `platform-tools/adb`.
    """
    homes = [os.environ[one] for one in ("ANDROID_HOME", "ANDROID_SDK_ROOT") if os.environ.get(one)]
    for home in (*homes, *SDKS):
        path = Path(home).expanduser() / place
        if path.is_file() and os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    return Path(found) if found else None


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), CONNECT_S).close()
    except OSError:
        return False
    return True
