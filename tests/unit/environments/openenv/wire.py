"""A server on OpenEnv's wire whose answers a test writes, for what a real one does only when it is broken."""

import asyncio
import base64
import io
import json
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from PIL import Image
from websockets.asyncio.server import ServerConnection, serve

from environments.openenv.environment import OpenEnvConfig, OpenEnvEnvironment

Answers = Callable[[dict[str, Any]], Any]


def picture(width: int = 64, height: int = 48, form: str = "png", colour: str = "red") -> str:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(stream, form)
    return base64.b64encode(stream.getvalue()).decode()


def half_clear() -> str:
    """A red PNG whose left half is transparent."""
    image = Image.new("RGBA", (64, 48), "red")
    image.paste((0, 0, 0, 0), (0, 0, 32, 48))
    stream = io.BytesIO()
    image.save(stream, "png")
    return base64.b64encode(stream.getvalue()).decode()


def nonsense(width: int = 64, height: int = 48) -> str:
    """A PNG whose sums are right and whose pixels cannot be decoded."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [_chunk(b"IHDR", header), _chunk(b"IDAT", b"nonsense"), _chunk(b"IEND", b"")]
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def observed(reward: Any = 0.0, done: Any = False, metadata: Any = None, **observation: Any) -> dict[str, Any]:
    shown = {"screenshot": picture(), "instruction": "Press it."} | observation
    return {
        "type": "observation",
        "data": {"observation": shown, "reward": reward, "done": done, "metadata": metadata or {}},
    }


def error(code: str, message: str = "no") -> dict[str, Any]:
    return {"type": "error", "data": {"code": code, "message": message}}


@asynccontextmanager
async def answering(answers: Answers) -> AsyncIterator[str]:
    """A server; `answers` says what it replies to a message: a message, a text, bytes, an awaitable, a list of these to
    send more than one, or None to hang up."""

    async def session(connection: ServerConnection) -> None:
        async for text in connection:
            message = json.loads(text)
            if message["type"] == "close":
                return
            reply = answers(message)
            reply = await reply if isinstance(reply, Awaitable) else reply
            if reply is None:
                connection.transport.abort()
                return
            for one in reply if isinstance(reply, list) else [reply]:
                await connection.send(json.dumps(one) if isinstance(one, dict) else one)

    async with serve(session, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"http://127.0.0.1:{port}"


def environment(url: str, **keys: Any) -> OpenEnvEnvironment:
    given = {"sessions": 2, "tasks": {"press": {"instruction": "Press {}."}}} | keys
    return OpenEnvEnvironment("theirs", OpenEnvConfig.model_validate({"kind": "openenv", "url": url, **given}))


def late(seconds: float, reply: dict[str, Any]) -> Awaitable[dict[str, Any]]:
    return asyncio.sleep(seconds, reply)
