"""Random transfers, several at once, each with its own faults, from owners that die, stop and come back."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from halfmoon.errors import HalfmoonError, TransferError
from kvtransfer import DataPlane, PulledBlock
from tests.kvtransfer.faults.clock import LoopClock
from tests.kvtransfer.faults.fates import Fate, Prefill, Trouble, draw_fate, draw_troubles
from tests.kvtransfer.faults.injector import Injector
from tests.kvtransfer.faults.owners import MortalOwner, withdraw
from tests.kvtransfer.planes import FIRST, Prompt, offer, take

AT_ONCE = 16

SLACK_SECONDS = 1.0
"""Beyond its deadline: for the engine, which holds the last blocks for a while, and calls between processes."""

_OFFER_SECONDS = 30.0
_OVERDUE_SECONDS = 10.0


@dataclass(frozen=True)
class Ending:
    """How transfer number `index` ended, and how many seconds after it should have (negative: before).

    Seconds in which this process did not get to run are not counted.
    """

    index: int
    state: str
    late: float
    reason: str = ""


@dataclass
class Storm:
    """`run` returns how every transfer ended; a wrong byte in a block that was delivered raises AssertionError."""

    seed: int
    owners: Sequence[MortalOwner]
    reader: DataPlane
    injector: Injector
    clock: LoopClock
    endings: list[Ending] = field(default_factory=list)

    async def run(self, count: int) -> Counter[str]:
        """Returns the endings by state, once all transfers have ended and all owners live."""
        troubles = draw_troubles(self.seed, count, len(self.owners)) if count else {}
        numbers = iter(range(count))
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._transfers(numbers, troubles, group))
        return Counter(ending.state for ending in self.endings)

    async def _transfers(self, numbers: Iterator[int], troubles: dict[int, Trouble], group: asyncio.TaskGroup) -> None:
        for index in numbers:
            if (trouble := troubles.get(index)) is not None:
                group.create_task(self._make(trouble))
            self.endings.append(await self._transfer(index))

    async def _make(self, trouble: Trouble) -> None:
        owner = self.owners[trouble.owner]
        if trouble.seconds is None:
            await owner.restart()
        else:
            await owner.stand_still(trouble.seconds)

    async def _transfer(self, index: int) -> Ending:
        fate = draw_fate(self.seed, index, len(self.owners))
        prompt = await self._offer(fate)
        self.injector.plan(prompt.handle.handle_id, fate.plan)
        computing = asyncio.create_task(_compute(prompt, fate))
        try:
            if fate.prefill is Prefill.BEFORE:
                await computing
            return await self._pull(index, prompt, fate)
        finally:
            computing.cancel()
            await asyncio.wait([computing])
            await withdraw(prompt.plane, prompt.handle.handle_id)
            self.injector.forget(prompt.handle.handle_id)

    async def _offer(self, fate: Fate) -> Prompt:
        """From the process that lives; again when it died meanwhile."""
        async with asyncio.timeout(_OFFER_SECONDS):
            while True:
                plane = await self.owners[fate.owner].plane()
                try:
                    return await offer(plane, fate.blocks)
                except HalfmoonError:
                    await asyncio.sleep(0.05)

    async def _pull(self, index: int, prompt: Prompt, fate: Fate) -> Ending:
        due, lost = time.monotonic() + fate.timeout, self.clock.lost
        pulling = asyncio.create_task(self._consume(prompt, fate))
        if fate.cancel_after is not None:
            await asyncio.wait([pulling], timeout=fate.cancel_after)
            pulling.cancel()
            due = min(due, time.monotonic())
        done, _ = await asyncio.wait([pulling], timeout=fate.timeout + _OVERDUE_SECONDS)
        late = time.monotonic() - due - (self.clock.lost - lost)
        if not done:
            pulling.cancel()
            return Ending(index, "OVERDUE", late)
        if pulling.cancelled():
            return Ending(index, "CANCELLED", late)
        error = pulling.exception()
        if error is None:
            return Ending(index, "COMPLETE", late)
        if not isinstance(error, TransferError):
            raise error
        return Ending(index, "FAILED", late, error.message)

    async def _consume(self, prompt: Prompt, fate: Fate) -> None:
        """As an engine does: looks at each block, holds it for a while, frees it."""
        missing = set(fate.wanted)
        async with aclosing(self.reader.pull("request", prompt.handle, fate.wanted, fate.timeout)) as events:
            async for event in events:
                if isinstance(event, PulledBlock):
                    missing.remove(event.block_index)
                    await self._hold(prompt, event, fate.hold)
        assert not missing, f"complete without blocks {missing}"

    async def _hold(self, prompt: Prompt, block: PulledBlock, seconds: float) -> None:
        """The bytes must be right at the end as well, and the block goes back however this ends."""
        try:
            await asyncio.sleep(seconds)
        finally:
            await take(self.reader, prompt, block)


async def _compute(prompt: Prompt, fate: Fate) -> None:
    """Ends early when the owner or the handle does."""
    with suppress(HalfmoonError):
        for number in range(fate.blocks):
            if fate.prefill is Prefill.GIVES_UP and number == fate.blocks // 2:
                await prompt.plane.withdraw(prompt.handle.handle_id, "prefill gave up")
                return
            if fate.prefill is not Prefill.BEFORE:
                await asyncio.sleep(fate.pace)
            await prompt.publish(1)
        if fate.prefill is not Prefill.HANGS:
            await prompt.seal(FIRST)
