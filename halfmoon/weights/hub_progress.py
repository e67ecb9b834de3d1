"""The hub library's progress bars, as calls instead of lines on the terminal."""

import io
from collections.abc import Callable
from threading import Lock

from huggingface_hub.utils.tqdm import tqdm


def byte_bar(report: Callable[[int], None]) -> type[tqdm]:
    """A class of bars that show nothing and `report` the bytes that have arrived, of all bars of one download."""
    arrived, lock = 0, Lock()

    class ByteBar(tqdm):
        """Counts bytes; the library also makes bars that count files, which are ignored."""

        monitor_interval = 0  # else the first bar starts a thread that nobody ends

        def __init__(self, *args: object, **kwargs: object) -> None:
            kwargs |= {"disable": False, "file": io.StringIO()}
            super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> bool | None:
            """More has arrived; called from the threads that download."""
            nonlocal arrived
            changed: bool | None = super().update(n)
            if self.unit == "B":
                with lock:
                    # Of the two bars for bytes, one counts what is received and one what is written.
                    arrived = max(arrived, int(self.n))
                    report(arrived)
            return changed

    return ByteBar
