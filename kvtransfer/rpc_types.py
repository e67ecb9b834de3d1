"""Names for the types of gRPC that say nothing here."""

from typing import Any, TypeAlias

import grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
"""Of a call that a servicer answers; the messages' types are in its signature."""
