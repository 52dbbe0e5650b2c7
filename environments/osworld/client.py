"""Talk to the server in OSWorld's machines: screenshots, commands and files over HTTP.

No request is repeated, since a command may have run even if its answer was lost. A missing or invalid answer ends the
trajectory as a failure of the sandbox. If the machine reports that it is unable, this is a separate error, since the
policy may have caused it.
"""

from collections.abc import Mapping
from typing import Any

import httpx

from schemas.failure import SandboxFailure

UNABLE = (400, 404, 500)
"""Status codes with which OSWorld's server reports that it is unable. Other codes come from a gateway, or mean a wrong
token."""


class MachineUnable(SandboxFailure):
    """Raised if the machine answers that it cannot fulfil the request."""


class VmClient:
    """Client of one machine.

    Args:
        url: address of the machine's server, such as `http://10.0.0.7:5000`.
        token: token that the server requires, if any.
        timeout_s: limit of one request, in seconds.
    """

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=timeout_s, trust_env=False)

    async def ready(self) -> bool:
        """Checks whether the machine returns a screenshot."""
        try:
            return (await self._http.get("/screenshot")).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    async def screenshot(self) -> bytes:
        """Returns a screenshot in the server's format; raises SandboxFailure."""
        return (await self._answered("GET", "/screenshot")).content

    async def execute(self, command: list[str] | str, shell: bool = False) -> dict[str, Any]:
        """Runs a command; returns `output`, `error` and `returncode`. Raises SandboxFailure."""
        fields = await self.asked("POST", "/execute", json={"command": command, "shell": shell})
        if not isinstance(fields, dict) or fields.get("status") != "success" or "output" not in fields:
            raise SandboxFailure(f"{self.url}/execute returns no output: {str(fields)[:200]}")
        return fields

    async def read(self, path: str) -> bytes | None:
        """Returns the content of a file; None if it does not exist or cannot be read. Raises SandboxFailure."""
        try:
            return (await self._answered("POST", "/file", data={"file_path": path})).content
        except MachineUnable:
            return None

    async def upload(self, path: str, content: bytes) -> None:
        """Writes a file; raises SandboxFailure."""
        files = {"file_data": (path.rpartition("/")[2], content)}
        await self._answered("POST", "/setup/upload", data={"file_path": path}, files=files)

    async def post(self, path: str, fields: Mapping[str, Any]) -> None:
        """Sends fields as JSON and ignores the content of the answer; raises SandboxFailure."""
        await self._answered("POST", path, json=dict(fields))

    async def asked(self, method: str, path: str, **more: Any) -> Any:
        """Sends a request and returns its JSON answer; raises SandboxFailure."""
        answer = await self._answered(method, path, **more)
        try:
            return answer.json()
        except ValueError as error:
            raise SandboxFailure(f"{self.url}{path} does not answer with JSON") from error

    async def fetch(self, url: str) -> bytes:
        """Downloads a file that a task names from the web, without sending the machine's token; raises
        SandboxFailure."""
        try:
            async with httpx.AsyncClient(follow_redirects=True, timeout=self._http.timeout) as web:
                return (await web.get(url)).raise_for_status().content
        except httpx.HTTPError as error:
            raise SandboxFailure(f"{url} cannot be fetched: {_reason(error)}") from error

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    async def _answered(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            answer = await self._http.request(method, path, **more)
        except httpx.HTTPError as error:
            raise SandboxFailure(f"{self.url}{path} does not answer: {_reason(error)}") from error
        if answer.status_code != httpx.codes.OK:
            kind = MachineUnable if answer.status_code in UNABLE else SandboxFailure
            raise kind(f"{self.url}{path} answers {answer.status_code}: {answer.text[:200]}")
        return answer


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
