"""Work that ends when its client hangs up."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.types import Receive

from gateway.errors import ClientGoneError

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[None, None, T]) -> T:
    """Awaits `work`; when the client goes first, cancels it, waits for its end, and raises ClientGoneError.

    The request's body must have been read: from then on `receive` tells nothing but the hang-up.
    """
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_hang_up(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError("the client hung up")
        return await task
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
