"""The engine's thread: commands come in by a queue, events go out in batches, once a step."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from halfmoon.cores import CoreShare
from halfmoon.engine.core import EngineCore
from halfmoon.engine.request import Ended, EngineRequest, Event, Sink, StoreLink
from halfmoon.engine.status import StatusBoard
from halfmoon.errors import HalfmoonError, InternalError
from halfmoon.request import OutputToken

_log = logging.getLogger(__name__)

Post = Callable[[list[tuple[Sink, Event]]], None]
"""Hands a step's events to the thread of the sinks."""

Result = TypeVar("Result")

ENGINE_THREAD = "engine"
"""Name of the thread that runs device steps."""

_IDLE_WAIT = 1.0
"""Seconds after which an idle engine turns once, to show that it lives."""


class Engine:
    """Thread-safe front of an `EngineCore`. All methods return at once; sinks are called by way of `post`.

    With `cores`, the process keeps to its part of the machine's cores while others work too.
    """

    def __init__(self, core: EngineCore, post: Post, cores: CoreShare | None = None) -> None:
        self.board = StatusBoard()
        self.last_turn = time.monotonic()
        self._core = core
        self._post = post
        self._cores = cores
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._failure: HalfmoonError | None = None
        self._thread = threading.Thread(target=self._run, name=ENGINE_THREAD, daemon=True)

    @property
    def failure(self) -> HalfmoonError | None:
        """Why the loop ended by itself; None while it turns."""
        return self._failure

    def start(self) -> None:
        """Starts the thread."""
        self.board.observe(self._core)
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Ends the loop after the step under way; False when that took longer than `timeout` seconds."""
        self._commands.put(self._set_stopping)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def submit(self, request: EngineRequest, sink: Sink) -> None:
        """Queues a request; its events end with `Ended`."""
        self._commands.put(lambda: self._submit(request, sink))

    def abort(self, request_id: str, error: HalfmoonError | None = None) -> None:
        """Ends a request when the step under way ends."""
        self._commands.put(lambda: self._core.abort(request_id, error))

    def attach(self, request_id: str, first: Sequence[OutputToken]) -> None:
        """All pages of an ATTACH were delivered before: starts its choices."""
        self._commands.put(lambda: self._core.attach(request_id, first))

    def stop_choices(self, request_id: str, choices: Sequence[int]) -> "Future[int]":
        """Ends choices; the result is how many were running."""
        return self._call(lambda: self._core.stop_choices(request_id, choices))

    def deliver(self, request_id: str, page: int, block: NDArray[np.generic]) -> "Future[None]":
        """Brings a page of an ATTACH; `block` must stay as it is until the future is done."""
        return self._call(lambda: self._core.deliver(request_id, page, block))

    def deliver_array(self, request_id: str, first: int, count: int, blocks: jax.Array) -> "Future[None]":
        """Brings pages of an ATTACH in an array on the device, see `EngineCore.deliver_array`."""
        return self._call(lambda: self._core.deliver_array(request_id, first, count, blocks))

    def connect_store(self, link: StoreLink) -> None:
        """Begins to offer pages to a prefix store, and to look for them there; its sink is called like any other."""
        self._commands.put(lambda: self._core.connect_store(link))

    def copy_pages(self, hashes: Sequence[bytes]) -> "Future[list[jax.Array | None]]":
        """Answers a `PagesOffered` with the pages wanted of it, maybe none; the result is as of `PageOffers.copy`."""
        return self._call(lambda: self._core.copy_pages(hashes))

    def fill_pages(self, search: int, first: int, blocks: Sequence[NDArray[np.generic]]) -> "Future[bool]":
        """Brings pages `first`.. of a prompt for `PagesSought`; `blocks` must stay as they are until it is done.

        The result is False when nobody waits for them any more.
        """
        return self._call(lambda: self._core.fill_pages(search, first, blocks))

    def end_search(self, search: int, pages: int) -> None:
        """Answers a `PagesSought`: the first `pages` of those sought were filled, and with the right bytes."""
        self._commands.put(lambda: self._core.end_search(search, pages))

    def check(self) -> "Future[None]":
        """Runs the core's integrity check."""
        return self._call(self._core.check)

    def _call(self, function: Callable[[], Result]) -> "Future[Result]":
        future: Future[Result] = Future()

        def command() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except HalfmoonError as error:
                    future.set_exception(error)
                except Exception as error:
                    future.set_exception(error)
                    raise

        self._commands.put(command)
        return future

    def _submit(self, request: EngineRequest, sink: Sink) -> None:
        if self._failure is not None:
            self._post([(sink, Ended(self._failure))])
        else:
            self._core.submit(request, sink)

    def _set_stopping(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except Exception as error:  # noqa: BLE001 - the device state is lost: nothing can go on
            _log.exception("the engine failed")
            self._fail(InternalError(f"the engine failed: {error}"))

    def _turn(self) -> None:
        self._take_commands()
        if self._cores is not None and not self._core.idle:
            self._cores.work()
        self._core.step()
        self.last_turn = time.monotonic()
        self.board.observe(self._core)
        self._post_events()

    def _post_events(self) -> None:
        if self._core.outbox:
            events, self._core.outbox = self._core.outbox, []
            self._post(events)

    def _take_commands(self) -> None:
        """Runs all commands; waits for one when there is nothing else to do."""
        try:
            if self._core.idle and not self._core.outbox:
                if self._cores is not None:
                    self._cores.rest()
                self._commands.get(timeout=_IDLE_WAIT)()
            while True:
                self._commands.get_nowait()()
        except queue.Empty:
            return

    def _fail(self, error: HalfmoonError) -> None:
        """Answers everything that is there, and what still comes, with the error."""
        self._failure = error
        self._post_events()
        self._post([(job.sink, Ended(error)) for job in self._core.jobs.values()])
        self._core.jobs.clear()
        while not self._stopping:
            self._commands.get()()
