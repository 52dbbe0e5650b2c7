"""A server of OpenAI's chat completions that judges: `python -m tests.system.parts.judge_server PORT LOG`.

It accepts trajectories of an odd number of steps, says that it took 100 tokens, and writes what it was asked to a
file, a line of JSON each. To the first question it is busy; who has another key than `secret` is turned away.
"""

import json
import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse


def made(log: Path) -> FastAPI:
    """The server."""
    app, busy = FastAPI(), [True]

    @app.get("/v1/models")
    def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "severe", "object": "model"}]}

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> JSONResponse:
        if request.headers.get("authorization") != "Bearer secret":
            return JSONResponse({"error": {"message": "no such key"}}, 401)
        if busy.pop() if busy else False:
            return JSONResponse({"error": {"message": "busy"}}, 503)
        body = await request.json()
        with log.open("a") as file:
            file.write(json.dumps(body) + "\n")
        text = body["messages"][1]["content"][0]["text"]
        score = 1.0 if text.count("Action:") % 2 else 0.0
        answer = json.dumps({"score": score, "reason": "by the number of steps"})
        return JSONResponse(
            {
                "id": "1", "object": "chat.completion", "model": body["model"],
                "choices": [{"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100},
            }
        )  # fmt: skip

    return app


if __name__ == "__main__":
    uvicorn.run(made(Path(sys.argv[2])), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
