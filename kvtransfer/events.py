"""What a pull tells the engine."""

from dataclasses import dataclass

from halfmoon.request import OutputToken
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.wire import token_from_pb


@dataclass(frozen=True, slots=True)
class PulledBlock:
    """Block `block_index` of the handle has arrived, verified, at byte `offset` of the host pool."""

    block_index: int
    offset: int


@dataclass(frozen=True, slots=True)
class PullComplete:
    """Everything has arrived and the handle is released.

    `first_tokens` has one token for each choice, or none. `transport` is empty when no block was moved. `seconds` is
    the time from the first read to the last verified block.
    """

    first_tokens: tuple[OutputToken, ...]
    bytes: int
    transport: str
    seconds: float


def event_from_pb(response: pb.PullResponse) -> PulledBlock | PullComplete:
    """One message of a pull."""
    if response.HasField("block"):
        return PulledBlock(response.block.block_index, response.block.offset)
    complete = response.complete
    tokens = tuple(token_from_pb(token) for token in complete.seal.first_tokens)
    return PullComplete(tokens, complete.bytes, complete.transport, complete.seconds)
