"""This process's end of `jax.experimental.transfer`, whose traps are known here and nowhere else.

An array is lent under an id of 64 random bits, drawn anew each time, since an id serves one pull. A pull of an unknown
or spent id never ends; the owner's server notices that a lent array or a pull has run out only while it is busy with
something else. So a reader waits with a deadline of its own, and an owner that has lent arrays has to `sweep`. Both
ends must agree on shapes and types before: a pull of another size ends the process.
"""

import secrets
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import jax
import numpy as np
from jax import Array
from jax.experimental import transfer

_CHANNELS = 4
"""Connections to each peer."""

_TRANSFER_BYTES = 4 << 20
"""Arrays are staged in pieces of this size."""


class DeviceLink:
    """Made once a process, since its server ends with the process only; calls return at once, from any thread.

    `host` is where it listens, `advertised_host` what peers connect to.
    """

    def __init__(self, host: str, advertised_host: str = "") -> None:
        device = jax.local_devices()[0]
        listening = _numeric(host)
        self._server = transfer.start_transfer_server(
            device.client,
            f"{listening}:0",
            [f"{listening}:0"] * _CHANNELS,
            transfer_size=_TRANSFER_BYTES,
            supports_pinned_allocator=device.platform == "tpu",
        )
        port = self._server.address().rpartition(":")[2]
        self.address = f"{_numeric(advertised_host or host)}:{port}"
        self._nothing = jax.device_put(np.zeros(1, np.uint8))
        self._connections: dict[str, transfer.TransferConnection] = {}
        self._lent: dict[int, float] = {}
        self._has_lent = False

    @property
    def lent_count(self) -> int:
        """Grants that are neither taken back nor run out."""
        return len(self._lent)

    def lend(self, arrays: Sequence[Array], seconds: float) -> int:
        """Lets whoever knows the id that is returned pull the arrays, once, for so long; keeps them for so long."""
        grant_id = secrets.randbits(64)
        self._has_lent = True
        self._server.await_pull(grant_id, list(arrays), _in(seconds))
        self._lent[grant_id] = time.monotonic() + seconds
        return grant_id

    def returned(self, grant_id: int) -> None:
        """The reader has pulled the arrays of a grant."""
        self._lent.pop(grant_id, None)

    def sweep(self) -> None:
        """Lets go of arrays whose grants have run out, and fails pulls that came too late; to be called now and then.

        Does nothing before something was lent: nobody has an id then.
        """
        if not self._has_lent:
            return
        self._server.await_pull(secrets.randbits(64), [self._nothing], _in(0.0))
        now = time.monotonic()
        self._lent = {grant_id: until for grant_id, until in self._lent.items() if now <= until}

    def pull(self, address: str, grant_id: int, specs: Sequence[jax.ShapeDtypeStruct], seconds: float) -> list[Array]:
        """Arrays that the owner at `address` fills; each must be asked whether it `is_ready`, up to a deadline.

        An array that is ready and failed raises `jax.errors.JaxRuntimeError` when it is used.
        """
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self._server.connect(address)
        pulled: list[Array] = connection.pull(grant_id, list(specs), _in(seconds))
        return pulled

    def forget(self, address: str) -> None:
        """The next pull from there connects anew."""
        self._connections.pop(address, None)


def _in(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _numeric(host: str) -> str:
    """The transfer server takes numbers alone."""
    return socket.gethostbyname(host)
