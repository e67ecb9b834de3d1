"""A connection that must bring its requests' heads in time."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class PunctualProtocol(H11Protocol):
    """uvicorn's connection, closed where a request's head takes longer than `timeout_keep_alive` seconds to arrive.

    uvicorn itself bounds the silence between two requests alone: a client that sends no head, or a part of one, would
    keep its socket for ever.
    """

    _head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first head is due from now on."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """A head is due while no request is under way, counted from its first byte."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._expect_head()
        else:
            self._forget_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is due any more."""
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._head_due is None:
            self._head_due = self.loop.call_later(self.timeout_keep_alive, self._head_is_late)

    def _forget_head(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _head_is_late(self) -> None:
        """A pipelined request may have begun by itself since."""
        self._head_due = None
        if self.cycle is None or self.cycle.response_complete:
            self.timeout_keep_alive_handler()
