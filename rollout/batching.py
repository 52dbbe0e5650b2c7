"""Many plays, one model: requests that arrive while a batch is being answered form the next batch.

So the batch grows with the load by itself and a lone request never waits for company. A policy that takes calls side by
side gets each request by itself instead, so that a slow answer holds up its own play only.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from models.policy import Context, Policy, Reply


class BatchedPolicy:
    """An async front for a `Policy`, for plays that run side by side in one event loop."""

    def __init__(self, policy: Policy, max_batch: int = 64) -> None:
        self.version = policy.version
        self.dialect = policy.dialect
        self.needs_elements = policy.needs_elements
        self._policy = policy
        self._max_batch = 1 if policy.side_by_side else max_batch
        self._free = max(1, policy.side_by_side)
        self._waiting: list[tuple[Context, float, asyncio.Future[Reply]]] = []
        self._threads = ThreadPoolExecutor(self._free, thread_name_prefix="policy")

    async def act(self, context: Context, temperature: float) -> Reply:
        """The policy's reply to one context."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((context, temperature, reply))
        if self._free:
            self._free -= 1
            asyncio.get_running_loop().call_soon(self._next)
        return await reply

    def close(self) -> None:
        """Lets the model's threads go."""
        self._threads.shutdown(wait=False)

    def _next(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        temperature = self._waiting[0][1]
        batch = [item for item in self._waiting if item[1] == temperature][: self._max_batch]
        self._waiting = [item for item in self._waiting if not any(item is taken for taken in batch)]
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(self._threads, self._policy.act, [item[0] for item in batch], temperature)
        job.add_done_callback(lambda done: self._deliver(done, batch))

    def _deliver(
        self, done: "asyncio.Future[list[Reply]]", batch: list[tuple[Context, float, "asyncio.Future[Reply]"]]
    ) -> None:
        error = done.exception()
        for position, (_, _, reply) in enumerate(batch):
            if reply.done():
                continue
            if error is not None:
                reply.set_exception(error)
            else:
                reply.set_result(done.result()[position])
        self._next()
