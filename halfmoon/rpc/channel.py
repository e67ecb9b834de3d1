"""Channels to other programs."""

import grpc

from halfmoon.rpc.options import CLIENT_OPTIONS


def open_channel(address: str) -> grpc.aio.Channel:
    """A channel to `host:port` (or `unix:path`); the caller closes it.

    Connects at the first call, each attempt bounded by the connect deadline; calls fail at once while the peer is away,
    and the channel tries again every second. No proxies.
    """
    return grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)
