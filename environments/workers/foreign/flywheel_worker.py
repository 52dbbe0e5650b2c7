"""Implement a worker in another environment's own Python: it answers OpenEnv's messages, one after the other.

It needs Python 3.10 and its standard library, and nothing of flywheel. A worker is a script that ends with
`serve(MyWorker)`; flywheel starts it with the number of a socket as its argument, and ends it. `MyWorker` has

    reset(fields)   begins an episode; `fields` is the config's `reset`, with the seed
    step(action)    performs one of flywheel's actions: {"type": "click", "x": 0.5, "y": 0.25}, fractions of the screen,
                    and keys by their usual names in small letters (enter, arrowleft, ctrl)
    close()         ends the episode; may be called again

where the first two return the result of `shown`. `finished` and `call_user` are steps as well. An exception ends the
process and counts as a failure of the environment; `Refused` counts as a failure of the policy.
"""

import base64
import json
import os
import socket
import struct
import sys
import traceback
import zlib
from collections.abc import Callable
from typing import Any

HEAD = struct.Struct(">II")
"""Header of each message: its number, which the answer repeats, and its size in bytes."""
SOFT, HARD = "VALIDATION_ERROR", "SESSION_ERROR"


class Refused(Exception):
    """Raised by `step`, before any effect, for an action that the environment does not have."""


def shown(
    picture: Any, instruction: str = "", reward: float | None = None, done: bool = False, **metadata: Any
) -> dict[str, Any]:
    """Builds the answer of a step or reset.

    Args:
        picture: bytes of a PNG or JPEG, or an array (height, width, 3) of uint8.
        instruction: the task's instruction; empty if the config's own holds.
        reward: of this step.
        done: whether the episode is over.
        metadata: `truncated` (true: `done` is a limit and no verdict), `action_error` (the reason that the action had
            no effect).
    """
    content = picture if isinstance(picture, bytes) else png(picture)
    observation = {"screenshot": base64.b64encode(content).decode("ascii"), "instruction": instruction}
    return {"observation": observation, "reward": reward, "done": bool(done), "metadata": metadata}


def png(pixels: Any) -> bytes:
    """An array (height, width, 3) of uint8 as a PNG; raises TypeError for another."""
    shape, kind = getattr(pixels, "shape", ()), str(getattr(pixels, "dtype", ""))
    if len(shape) != 3 or shape[2] != 3 or kind != "uint8":
        raise TypeError(f"a picture is (height, width, 3) of uint8, and this is {shape} of {kind or type(pixels)}")
    height, width, _ = shape
    raw, row = pixels.tobytes(), width * 3
    lines = b"".join(b"\0" + raw[at : at + row] for at in range(0, height * row, row))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def serve(make: Callable[[], Any]) -> None:
    """Answers until flywheel hangs up."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    os.environ.pop("PYTHONPATH", None)
    worker = make()
    with channel, channel.makefile("rwb") as stream:
        while (read := _read(stream)) is not None:
            number, message = read
            answer = _answer(worker, message.get("type"), message.get("data") or {})
            if answer is None:
                continue
            content = json.dumps(answer).encode()
            stream.write(HEAD.pack(number, len(content)) + content)
            stream.flush()
            if answer["type"] == "error" and answer["data"]["code"] == HARD:
                break
    worker.close()


def _answer(worker: Any, kind: Any, data: dict[str, Any]) -> "dict[str, Any] | None":
    try:
        if kind == "state":
            return {"type": "state", "data": {}}
        if kind == "close":
            worker.close()
            return None
        return {"type": "observation", "data": worker.reset(data) if kind == "reset" else worker.step(data)}
    except Refused as error:
        return _error(SOFT, str(error))
    except Exception as error:
        traceback.print_exc()
        return _error(HARD, f"{type(error).__name__}: {error}"[:400])


def _error(code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "data": {"code": code, "message": message}}


def _read(stream: Any) -> "tuple[int, dict[str, Any]] | None":
    """The number of a message, and the message; None at the end of the stream."""
    header = stream.read(HEAD.size)
    if len(header) < HEAD.size:
        return None
    number, size = HEAD.unpack(header)
    return number, json.loads(stream.read(size))


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
