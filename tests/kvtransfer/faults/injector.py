"""Keeps the plans of handles, and says what happens to their batches."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import ParamSpec

from kvtransfer.transports.base import ReadKey, Transport
from tests.kvtransfer.faults.misdeeds import Misdeed, Plan
from tests.kvtransfer.faults.transport import FaultyTransport

Parameters = ParamSpec("Parameters")


class Injector:
    """Nothing happens to handles without a plan. Batches are counted by handle, whichever transport they go over."""

    def __init__(self) -> None:
        self.committed: Counter[Misdeed] = Counter()
        self._lock = threading.Lock()
        self._plans: dict[bytes, Plan] = {}
        self._batches: Counter[bytes] = Counter()

    def plan(self, handle_id: bytes, plan: Plan) -> None:
        """From now on this happens to the batches of a handle."""
        with self._lock:
            self._plans[handle_id] = plan

    def forget(self, handle_id: bytes) -> None:
        """The handle is gone."""
        with self._lock:
            self._plans.pop(handle_id, None)
            self._batches.pop(handle_id, None)

    def next(self, key: ReadKey) -> tuple[Misdeed, random.Random]:
        """What happens to the next batch of a handle, and the numbers that decide where in it."""
        with self._lock:
            number = self._batches[key.handle_id]
            self._batches[key.handle_id] += 1
            misdeed, rng = self._plans.get(key.handle_id, Plan("")).batch(number)
            self.committed[misdeed] += 1
        return misdeed, rng

    def around(self, open_transport: Callable[Parameters, Transport]) -> Callable[Parameters, Transport]:
        """Opens the same transports, with faults."""

        def opened(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Transport:
            return FaultyTransport(open_transport(*args, **kwargs), self.next)

        return opened
