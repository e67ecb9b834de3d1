"""The generations of one HTTP request as one stream of events."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Self

from gateway.client import RouterClient
from gateway.errors import domain_error
from halfmoon.errors import DeadlineError, HalfmoonError
from halfmoon.v1.router_pb2 import GenerateRequest, GenerateResponse

_BUFFERED_EVENTS = 64

_ROUTER_GRACE = 1.0
"""Seconds that a router gets to report its own deadline before the call is cut."""

Event = tuple[int, GenerateResponse]
"""An event and the index of the request that it belongs to."""


class Fanout:
    """Runs requests, at most `at_once` together, and yields their events as they come.

    An async context manager and iterator: leaving the block cancels what still runs and waits until it has ended. The
    first error of any request is raised to the reader; so is an error given to `fail`. `seconds` bounds the whole.
    """

    def __init__(
        self, client: RouterClient, requests: Sequence[GenerateRequest], *, seconds: float, at_once: int
    ) -> None:
        self._client = client
        self._requests = requests
        self._seconds = seconds
        self._places = asyncio.Semaphore(at_once)
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(_BUFFERED_EVENTS)
        self._tasks: list[asyncio.Task[None]] = []
        self._left = len(requests)
        self._failure: HalfmoonError | None = None

    async def __aenter__(self) -> Self:
        deadline = asyncio.get_running_loop().time() + self._seconds
        self._tasks = [
            asyncio.create_task(self._run(index, request, deadline)) for index, request in enumerate(self._requests)
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while self._left:
            event = await self._events.get()
            if self._failure is not None:
                raise self._failure
            if event is not None:
                return event
            self._left -= 1
        raise StopAsyncIteration

    def fail(self, error: HalfmoonError) -> None:
        """Ends the stream with `error` at once; the first error counts."""
        if self._failure is not None:
            return
        self._failure = error
        while not self._events.empty():
            self._events.get_nowait()
        self._events.put_nowait(None)

    async def _run(self, index: int, request: GenerateRequest, deadline: float) -> None:
        try:
            async with self._places:
                await self._forward(index, request, deadline - asyncio.get_running_loop().time())
        except Exception as problem:  # noqa: BLE001 - the reader must not wait for events that will never come
            self.fail(domain_error(problem, request.request_id))
        else:
            await self._events.put(None)

    async def _forward(self, index: int, request: GenerateRequest, seconds: float) -> None:
        if seconds <= 0:
            raise DeadlineError(f"the request took longer than its {self._seconds:g} s")
        request.timeout_ms = max(1, round(seconds * 1000))
        async with aclosing(self._client.generate(request, seconds + _ROUTER_GRACE)) as events:
            async for event in events:
                await self._events.put((index, event))
