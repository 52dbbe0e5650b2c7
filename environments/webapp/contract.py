"""Set a web application to a state and read its state, by CUA-Gym-Hub's contract over HTTP."""

import secrets
from typing import Any, cast

import httpx

from schemas.failure import SandboxFailure, TrajectoryFailure
from schemas.world import State


def new_session() -> str:
    """Makes a random id that cannot be guessed."""
    return secrets.token_urlsafe(24)


class Contract:
    """The contract of an application at an address.

    Args:
        client: HTTP client.
        base: `http://address:port`.
        headers: headers of every request.
        origin: origin of the application's pages.
    """

    def __init__(self, client: httpx.AsyncClient, base: str, headers: dict[str, str], origin: str) -> None:
        self._client, self._base, self._headers = client, base, headers
        self.origin = origin

    async def set(self, sid: str, state: State) -> None:
        """Begins a session in a state; raises SandboxFailure."""
        await self._ask("POST", "/post", sid, {"action": "set", "state": state})

    async def put(self, sid: str, state: State) -> None:
        """Writes a session's current state, as a page does; raises SandboxFailure."""
        await self._ask("POST", "/post", sid, {"action": "set_current", "state": state})

    async def states(self, sid: str) -> tuple[State, State]:
        """Returns the initial and the current state; raises SandboxFailure, or TrajectoryFailure for an invalid
        answer."""
        answer = await self._ask("GET", "/go", sid)
        try:
            message: Any = answer.json()
            initial, current = message["initial_state"], message["current_state"]
        except (ValueError, KeyError, TypeError) as error:
            raise TrajectoryFailure("verifier", f"{self._base}/go answers with no states") from error
        if not isinstance(initial, dict) or not isinstance(current, dict):
            raise TrajectoryFailure("verifier", f"{self._base}/go answers with states that are no objects")
        return cast(State, initial), cast(State, current)

    async def end(self, sid: str) -> None:
        """Deletes a session; raises SandboxFailure."""
        await self._ask("POST", "/end" if self._headers else "/post", sid, {"action": "reset"})

    async def _ask(self, method: str, path: str, sid: str, output: Any = None) -> httpx.Response:
        try:
            return (
                await self._client.request(
                    method, f"{self._base}{path}", params={"sid": sid}, json=output, headers=self._headers
                )
            ).raise_for_status()
        except httpx.HTTPError as error:
            raise SandboxFailure(f"{self._base}{path}: {error or type(error).__name__}") from error
