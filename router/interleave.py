"""Reading several streams as one."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

Item = TypeVar("Item")

Read = Callable[[], Awaitable[Item | None]]
"""Gives the next item of a stream, None at its end."""


async def interleaved(*streams: Read[Item]) -> AsyncGenerator[Item, None]:
    """What all say, in the order of arrival (of the first given where several have something), until all have ended.

    Raises what any raises, as soon as it does. Reads under way are cancelled when this is closed early.
    """
    reads = list(streams)
    tasks = [asyncio.ensure_future(_next(read)) for read in reads]
    try:
        while len(tasks) > 1:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            index = next(index for index, task in enumerate(tasks) if task.done())
            item = tasks[index].result()
            if item is None:
                del tasks[index], reads[index]
                continue
            tasks[index] = asyncio.ensure_future(_next(reads[index]))
            yield item
        item = await tasks[0]
        while item is not None:
            yield item
            item = await reads[0]()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _next(read: Read[Item]) -> Item | None:
    return await read()
