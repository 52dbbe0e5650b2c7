"""Sends rank 0's messages to the starter of the training, through its status folder, in order.

A thread writes the messages, so that no step waits for a store. A training that was started by hand prints them.
"""

import json
from concurrent.futures import Future, ThreadPoolExecutor

from common import log
from learning.status_folder import StatusFolder


class Reports:
    """The messages of this process."""

    def __init__(self) -> None:
        self._board: StatusFolder | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._sent: list[Future[None]] = []

    def to(self, board: StatusFolder) -> None:
        """Sends later messages to this status folder."""
        self._board, self._writer = board, ThreadPoolExecutor(1, "reports")

    def send(self, **fields: object) -> None:
        """Sends a message; `flush` reports errors of earlier messages."""
        if self._board is None or self._writer is None:
            print(json.dumps(fields), flush=True)
            return
        self._sent = [one for one in self._sent if not one.done() or one.exception()]
        self._sent.append(self._writer.submit(self._board.send, fields))

    def flush(self) -> None:
        """Waits until all messages are written; prints failures to standard error."""
        sent, self._sent = self._sent, []
        for one in sent:
            if (error := one.exception()) is not None:
                log.write("error", f"A message could not be written: {error}")


REPORTS = Reports()
send = REPORTS.send
"""Sends a message to the starter of this training."""
