"""Keeps a set of programs running until it is told to stop, then stops them in order."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from cli.supervise.child import Child, describe_status
from cli.supervise.console import Console
from cli.supervise.probe import wait_ready
from cli.supervise.program import Program, drain_order
from cli.supervise.restarts import RestartHistory, RestartPolicy

EXIT_FAILED = 1
EXIT_KILLED = 130

_KILL_GRACE = 5.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long things may take, in seconds: until all programs are ready, and until all have ended."""

    start: float
    drain: float


class Supervisor:
    """Owns the processes of `programs`; none of them outlives `run`."""

    def __init__(
        self, programs: tuple[Program, ...], console: Console, bounds: Bounds, policy: RestartPolicy | None = None
    ) -> None:
        self._programs = programs
        self._console = console
        self._bounds = bounds
        self._policy = policy or RestartPolicy()
        self._children: dict[str, Child] = {}
        self._ready: set[str] = set()
        self._all_ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._status = 0

    async def run(self, on_ready: Callable[[], None]) -> int:
        """Runs all programs until SIGTERM, SIGINT or SIGHUP; `on_ready` is called once, when all are ready.

        Returns 0 after an orderly end, 1 when the programs could not be brought up, 130 after a second SIGINT.
        """
        self._listen_for_signals()
        try:
            async with asyncio.TaskGroup() as tasks:
                keepers = {program.name: tasks.create_task(self._keep(program)) for program in self._programs}
                await self._come_up(on_ready)
                await self._stopping.wait()
                await self._drain(keepers)
        finally:
            self._kill_all()
        return self._status

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if not self._stopping.is_set():
            self._console.say(f"{number.name}: draining for at most {self._bounds.drain:g} s")
            self._stopping.set()
        elif number is signal.SIGINT:
            self._console.say("second Ctrl-C: ending everything at once")
            self._status = EXIT_KILLED
            self._kill_all()

    async def _come_up(self, on_ready: Callable[[], None]) -> None:
        await _first((self._all_ready, self._stopping), self._bounds.start)
        if self._stopping.is_set():
            return
        if self._all_ready.is_set():
            on_ready()
        else:
            missing = ", ".join(program.name for program in self._programs if program.name not in self._ready)
            self._fail(f"not ready within {self._bounds.start:g} s: {missing}")

    def _fail(self, message: str) -> None:
        self._console.say(f"error: {message}")
        self._status = EXIT_FAILED
        self._stopping.set()

    async def _keep(self, program: Program) -> None:
        history = RestartHistory(self._policy)
        while not self._stopping.is_set():
            began = time.monotonic()
            ending = await self._run_once(program, history)
            if self._stopping.is_set():
                return
            delay = history.died(time.monotonic() - began)
            if delay is None:
                self._fail(f"{program.name} {ending}, {self._policy.attempts} times before it was ready; giving up")
                return
            self._console.say(f"{program.name} {ending}; starting it again in {delay:g} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)

    async def _run_once(self, program: Program, history: RestartHistory) -> str:
        try:
            child = await Child.start(program, lambda line: self._console.say(line, program.name))
        except OSError as error:
            return f"could not be started ({error.strerror})"
        self._children[program.name] = child
        if self._stopping.is_set():
            child.kill()
        probe = asyncio.create_task(self._watch_readiness(program, history))
        try:
            return describe_status(await child.wait())
        finally:
            probe.cancel()
            self._ready.discard(program.name)
            del self._children[program.name]

    async def _watch_readiness(self, program: Program, history: RestartHistory) -> None:
        began = time.monotonic()
        await wait_ready(program.readiness)
        history.ready()
        self._ready.add(program.name)
        self._console.say(f"{program.name} is ready after {time.monotonic() - began:.1f} s")
        if len(self._ready) == len(self._programs):
            self._all_ready.set()

    async def _drain(self, keepers: dict[str, asyncio.Task[None]]) -> None:
        deadline = time.monotonic() + self._bounds.drain
        for group in drain_order(self._programs):
            for program in group:
                self._ask_to_end(program.name)
            await asyncio.wait(
                [keepers[program.name] for program in group], timeout=max(0.0, deadline - time.monotonic())
            )
        if self._children:
            self._console.say(f"did not end in time and are ended now: {', '.join(self._children)}")
            self._kill_all()
            await asyncio.wait(keepers.values(), timeout=_KILL_GRACE)
        self._console.say("all programs have ended")

    def _ask_to_end(self, name: str) -> None:
        child = self._children.get(name)
        if child is None:
            return
        if name in self._ready:
            child.terminate()
        else:
            child.kill()  # it holds no requests yet, and may be compiling for minutes

    def _kill_all(self) -> None:
        for child in self._children.values():
            child.kill()


async def _first(events: Iterable[asyncio.Event], bound: float) -> None:
    """Returns when one of `events` is set, or after `bound` seconds."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=bound, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
