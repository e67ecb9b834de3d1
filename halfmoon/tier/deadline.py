"""How long a call to a tier may take."""

from typing import Any

import grpc

from halfmoon.config import DEADLINES


def seconds_left(context: grpc.aio.ServicerContext[Any, Any]) -> float:
    """What the caller leaves, at most the bound of a request."""
    remaining = context.time_remaining()
    return DEADLINES.request if remaining is None else min(remaining, DEADLINES.request)
