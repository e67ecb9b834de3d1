"""Engine events on the event loop of the servicers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from halfmoon.engine.request import Ended, Event, Sink

Extra = TypeVar("Extra")


def post_to(loop: asyncio.AbstractEventLoop) -> Callable[[list[tuple[Sink, Event]]], None]:
    """Hands batches of events to sinks on `loop`: one wake-up a step, however many streams there are."""

    def deliver(events: list[tuple[Sink, Event]]) -> None:
        for sink, event in events:
            sink(event)

    def post(events: list[tuple[Sink, Event]]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, events)

    return post


class EventStream(Generic[Extra]):
    """The events of one request, and what the servicer's own tasks add to them, in order up to `Ended`.

    Iterating ends after `Ended`; its error, if any, is raised.
    """

    def __init__(self) -> None:
        self.ended = False
        self._queue: asyncio.Queue[Event | Extra] = asyncio.Queue()

    def put(self, event: Event | Extra) -> None:
        """Adds an event; called on the event loop."""
        if isinstance(event, Ended):
            self.ended = True
        self._queue.put_nowait(event)

    async def __aiter__(self) -> AsyncIterator[Event | Extra]:
        while True:
            event = await self._queue.get()
            if not isinstance(event, Ended):
                yield event
                continue
            if event.error is not None:
                raise event.error
            return
