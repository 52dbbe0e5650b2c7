"""A teacher's server with SGLang's `/generate`: a random model answers, in this process or over HTTP."""

import base64
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import torch
from PIL import Image
from torch import Tensor

from models.families.processor import read_processor

Answer = tuple[int, dict[str, Any]]


class FakeTeacher:
    """Answers as SGLang does for a model directory.

    After `dead_after` requests for scores, it answers 500, and after `misreads_after`, it reads one token less. It
    aborts the first `aborts` requests for scores.

    Token ids of pictures in its answers are 0, as SGLang's. With `retokenizes`, it decodes ids and encodes the
    text, as older releases do. `missing` log probabilities are left out of each answer.
    """

    def __init__(self, directory: Path, name: str = "big", retokenizes: bool = False, missing: int = 0) -> None:
        from transformers import AutoModelForImageTextToText

        self.name, self.retokenizes, self.missing = name, retokenizes, missing
        self.dead_after: int | None = None
        self.misreads_after: int | None = None
        self.aborts = 0
        self.paths: tuple[str, ...] = ("/v1/models", "/generate")
        self.scored: list[dict[str, Any]] = []
        self.probes: list[dict[str, Any]] = []
        self._processor = read_processor(directory)
        self._model: Any = AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32).eval()
        self._turn = threading.Lock()

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Returns status and JSON."""
        if path not in self.paths:
            return 404, {"detail": "Not Found"}
        if method == "GET":
            return 200, {"data": [{"id": self.name}]}
        with self._turn:
            return self._generate(json.loads(body))

    def transport(self) -> httpx.MockTransport:
        """Returns a transport without a network."""

        def handle(request: httpx.Request) -> httpx.Response:
            status, answer = self.answer(request.method, request.url.path, request.content)
            return httpx.Response(status, json=answer)

        return httpx.MockTransport(handle)

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serves on a free port, and yields the url."""
        teacher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(*teacher.answer("GET", self.path, b""))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._send(*teacher.answer("POST", self.path, body))

            def _send(self, status: int, answer: dict[str, Any]) -> None:
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            server.server_close()

    def _generate(self, body: dict[str, Any]) -> Answer:
        (self.probes if "text" in body else self.scored).append(body)
        if self.dead_after is not None and len(self.scored) > self.dead_after:
            return 500, {"error": {"message": "the worker died"}}
        if "input_ids" in body and self.misreads_after is not None and len(self.scored) > self.misreads_after:
            body = {**body, "input_ids": body["input_ids"][:-1]}
        whole, pictures = self._read(body)
        if whole is None:
            return 400, {"error": {"message": "not one place for each picture"}}
        start = body["logprob_start_len"]
        if start >= len(whole):
            return 400, {"error": {"message": f"logprob_start_len={start} is higher than the number of input tokens"}}
        shares = self._shares(whole, pictures)
        logprobs = [0.0, *shares[:-1].gather(1, torch.tensor(whole)[1:, None])[:, 0].tolist()]
        mark = self._model.config.image_token_id
        entries: list[list[Any]] = [
            [None if at == start else logprobs[at], 0 if token == mark else token, None]
            for at, token in enumerate(whole)
            if at >= start
        ]
        meta: dict[str, Any] = {"prompt_tokens": len(whole), "completion_tokens": 0}
        if "input_ids" in body and len(self.scored) <= self.aborts:
            ended = {"type": "abort", "message": "Abort before prefill"}
            return 200, {"text": "", "meta_info": {**meta, "finish_reason": ended, "input_token_logprobs": entries[:1]}}
        return 200, {"text": "", "meta_info": {**meta, "input_token_logprobs": entries[self.missing :]}}

    def shares(self, body: dict[str, Any]) -> Tensor:
        """Returns (n, vocabulary) log probabilities of each next token of a request's prompt and reply."""
        whole, pictures = self._read(body)
        assert whole is not None
        return self._shares(whole, pictures)

    def _read(self, body: dict[str, Any]) -> tuple[list[int] | None, Any]:
        """Returns all tokens, None unless there is one place for each picture, and the pictures for the model."""
        tokenizer = self._processor.tokenizer
        text = body.get("text")
        if text is None and self.retokenizes:
            text = tokenizer.decode(body["input_ids"])
        ids = body["input_ids"] if text is None else tokenizer(text, add_special_tokens=False)["input_ids"]
        pictures = [Image.open(io.BytesIO(base64.b64decode(one.partition(",")[2]))) for one in body["image_data"]]
        made = self._processor.image_processor(images=pictures, return_tensors="pt")
        mark = self._model.config.image_token_id
        sizes = (made["image_grid_thw"].prod(-1) // self._processor.image_processor.merge_size**2).tolist()
        if ids.count(mark) != len(sizes):
            return None, made
        left = iter(sizes)
        return [token for one in ids for token in [one] * (next(left) if one == mark else 1)], made

    @torch.inference_mode()
    def _shares(self, ids: list[int], pictures: Any) -> Tensor:
        tokens = torch.tensor([ids])
        kinds = (tokens == self._model.config.image_token_id).int()
        return self._model(input_ids=tokens, **pictures, mm_token_type_ids=kinds).logits[0].log_softmax(-1)
