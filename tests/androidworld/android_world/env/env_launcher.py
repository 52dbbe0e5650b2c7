"""Connects to the phone whose file is next to the program adb."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np


class Env:
    def __init__(self, console_port: int, adb_path: str, grpc_port: int) -> None:
        home = Path(adb_path).resolve().parent
        sys.path.insert(0, str(home))
        import phone

        self._phone, self._file = phone, home / f"emulator-{console_port}.json"
        self.interaction_cache = ""
        self.controller = self
        self.note(f"connected {grpc_port} {os.environ.get('https_proxy')} {os.environ['no_proxy']}")

    @property
    def state(self) -> dict[str, Any]:
        found = self._phone.read(self._file)
        if found["state"] != "device":
            raise RuntimeError("adb: no devices/emulators found")
        return found

    def put(self, **values: Any) -> None:
        self._phone.write(self._file, {**self.state, **values})

    def note(self, what: str) -> None:
        self.put(done=[*self.state["done"], what])

    def reset(self, go_home: bool = False) -> None:
        self.interaction_cache = ""
        self.note("home" if go_home else "stay")

    def hide_automation_ui(self) -> None:
        self.note("hide")

    def get_state(self, wait_to_stabilize: bool = False) -> SimpleNamespace:
        """The screen: a third for each lamp, yellow if it is on, drawn in the display's natural position."""
        state = self.state
        width, height = self.logical_screen_size
        seen = np.zeros((height, width, 3), np.uint8)
        for number, lamp in enumerate(state["lamps"]):
            seen[number * height // 3 : (number + 1) * height // 3] = (250, 220, 0) if lamp else (40, 40, 40 + number)
        display = np.zeros((state["size"][1], state["size"][0], 3), np.uint8)
        left, top, right, bottom = self.physical_frame_boundary
        flat = np.rot90(seen, -state["turns"])
        rows = np.arange(bottom - top) * flat.shape[0] // (bottom - top)
        columns = np.arange(right - left) * flat.shape[1] // (right - left)
        display[top:bottom, left:right] = flat[rows][:, columns]
        return SimpleNamespace(pixels=display)

    @property
    def logical_screen_size(self) -> tuple[int, int]:
        width, height = self._phone.logical_size(self.state)
        return width, height

    @property
    def physical_frame_boundary(self) -> tuple[int, int, int, int]:
        return tuple(self.state["frame"] or (0, 0, *self.state["size"]))

    @property
    def orientation(self) -> int:
        return self.state["turns"]


def load_and_setup_env(console_port: int, adb_path: str, grpc_port: int) -> Env:
    from android_env.components.adb_controller import AdbController

    AdbController().failed()
    return Env(console_port, adb_path, grpc_port)
