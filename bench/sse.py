"""Server-sent events, as far as streams of completions need them."""

from collections.abc import Iterator


class EventReader:
    """Cuts a stream of bytes, however it is chunked, into the data of its events.

    Each event's data is taken to be one line, as every OpenAI-compatible server sends it.
    """

    def __init__(self) -> None:
        self._rest = b""

    def push(self, data: bytes) -> Iterator[bytes]:
        """The data of the lines that `data` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
