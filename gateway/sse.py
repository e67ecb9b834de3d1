"""Server-sent events."""

import asyncio
from collections.abc import Iterable

import msgspec
from starlette.types import Send

from gateway.errors import ClientGoneError

_DONE = b"data: [DONE]\n\n"

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

_LINE_BREAKS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
"""Characters that JSON leaves as they are and that some clients take for the end of a line, with their escapes."""

_encoder = msgspec.json.Encoder()


class EventStream:
    """An answer of `text/event-stream`: begin, write, end. Raises ClientGoneError when a write takes too long."""

    def __init__(self, send: Send, write_seconds: float) -> None:
        self._send = send
        self._write_seconds = write_seconds
        self.begun = False

    async def begin(self) -> None:
        """Sends the head with status 200."""
        self.begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})

    async def write(self, messages: Iterable[msgspec.Struct]) -> None:
        """Sends messages, one event each."""
        data = b"".join(map(encode_event, messages))
        if data:
            await self._write(data, more=True)

    async def end(self, messages: Iterable[msgspec.Struct]) -> None:
        """Sends the last messages and the end mark."""
        await self._write(b"".join(map(encode_event, messages)) + _DONE, more=False)

    async def _write(self, data: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(self._write_seconds):
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            raise ClientGoneError(f"the client left its stream unread for {self._write_seconds:g} s") from None


def encode_event(message: msgspec.Struct) -> bytes:
    """One event that carries a message as JSON on a single line."""
    data = _encoder.encode(message)
    if not data.isascii():
        for raw, escape in _LINE_BREAKS:
            data = data.replace(raw, escape)
    return b"data: %b\n\n" % data
