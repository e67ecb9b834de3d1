"""Calls into a library that may hang: they end in time for the caller, and go on behind its back."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class BoundedCall(Generic[Result]):
    """Runs `work` in a thread of its own, which a process that ends does not wait for."""

    def __init__(self, work: Callable[[], Result], name: str) -> None:
        self._work = work
        self._results: list[Result] = []
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def running(self) -> bool:
        """Whether it still uses what `work` uses."""
        return not self._done.is_set()

    def result(self, deadline: float) -> Result:
        """Raises TimeoutError when there is none by `deadline` (monotonic), or what `work` raised."""
        if not self._done.wait(max(0.0, min(deadline - time.monotonic(), threading.TIMEOUT_MAX))):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            self._error = error
        finally:
            self._done.set()
