#!/usr/bin/env bash
# s3fs 2026.9.0 (aiobotocore 3.10.0, botocore 1.43.117), 2026-11-27
#
# Guess: an S3 client that points at a web server, such as the console port of an object store, raises an error at the
# first response, because an HTML page is not a bucket listing.
# What happens: `ls` of any bucket is an empty list, and `exists` is true for any name: each page with status 200 counts as
# an empty bucket. A JSON page with status 200 raises OSError `Internal Server Error`, although the server had no error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet s3fs==2026.9.0 fsspec==2026.9.0 aiobotocore==3.10.0 botocore==1.43.117
"$folder/venv/bin/python" - <<'PY'
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import s3fs


class Page(BaseHTTPRequestHandler):
    body, kind, statuses = b"", "", []

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", self.kind)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(self.body)

    do_HEAD = do_GET

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
place = f"http://127.0.0.1:{server.server_port}"
files = s3fs.S3FileSystem(
    key="key", secret="secret", endpoint_url=place, use_listings_cache=False,
    config_kwargs={"retries": {"max_attempts": 1}}, skip_instance_cache=True,
)
files.retries = 1
Page.body, Page.kind = b"<!DOCTYPE html><html><body><h1>Console</h1></body></html>", "text/html"
listed, there = files.ls("no-such-bucket", refresh=True), files.exists("no-such-bucket")
print(f"an HTML page: ls gives {listed}, exists gives {there}")
Page.body, Page.kind = b'{"version": "1.0"}', "application/json"
try:
    found = files.ls("no-such-bucket", refresh=True)
except OSError as error:
    found = f"{type(error).__name__}: {error}"
print(f"a JSON page with status 200: {found}")
raise SystemExit(0 if listed == [] and there and "Internal Server Error" in str(found) else 1)
PY
