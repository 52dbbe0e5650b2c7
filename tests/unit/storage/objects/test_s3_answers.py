"""What answers at `lake.endpoint`: an S3 server, one without the bucket, or something that is no S3 server."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from schemas.config.sections import LakeConfig
from schemas.failure import LakeError
from storage.address import Address, require_bucket, resolve
from tests.fixtures.sentences import Sentences

NAMED = '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name></ListBucketResult>'
ERROR = '<?xml version="1.0"?><Error><Code>{}</Code><Message>m</Message></Error>'
Answering = Callable[[int, str, str], Address]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """Starts a server that answers every request alike; gives an address there."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, kind: str, body: str) -> Address:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Location", "/ui/")
                self.end_headers()
                self.wfile.write(body.encode() if self.command == "GET" else b"")

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return resolve(LakeConfig(uri="s3://b/lake", endpoint=f"http://127.0.0.1:{server.server_port}"))

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (404, "text/plain", "404 page not found\n"),  # the master of SeaweedFS 4.47, port 9333
        (200, "text/html", "<html><body>MinIO Console</body></html>"),
        (200, "application/json", '{"Version": "4.47"}'),
        (200, "text/plain", ""),
        (200, "application/xml", '<?xml version="1.0"?><feed/>'),
        (400, "text/plain", "Client sent an HTTP request to an HTTPS server.\n"),
        (401, "text/html", "<h1>Who?</h1>"),
        (403, "text/html", "<h1>No</h1>"),
        (404, "text/html", ""),
        (405, "text/plain", "no"),
        (302, "text/html", "elsewhere"),
    ],
)
def test_what_does_not_speak_s3_is_called_no_s3_server_with_its_address(
    answering: Answering, status: int, kind: str, body: str, sentence: Sentences
) -> None:
    address = answering(status, kind, body)
    with pytest.raises(LakeError) as caught:
        require_bucket(address)
    assert caught.value.problem.startswith("http://127.0.0.1:")
    sentence(caught.value.problem)
    assert "8333" in caught.value.hint


def test_an_s3_server_is_believed_whatever_it_says_of_the_bucket(answering: Answering) -> None:
    require_bucket(answering(200, "application/xml", NAMED))
    with pytest.raises(LakeError, match="no bucket `b`"):
        require_bucket(answering(404, "application/xml", ERROR.format("NoSuchBucket")))
    with pytest.raises(PermissionError):
        require_bucket(answering(403, "application/xml", ERROR.format("AccessDenied")))
