"""Both ends of the handshake of one connection: who proves what to whom, apart from how the bytes travel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvtransfer.proofs import PROOF_BYTES, handle_tag, new_nonce, proof_holds, prove
from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, Grant, ReadGate, ReadKey, ReadStatus

_READER = b"reader"
_OWNER = b"owner"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the owner sends back, and the read that has begun, if one has."""

    reply: bytes
    grant: Grant | None


class OwnerSession:
    """The server's end of one connection."""

    def __init__(self, gate: ReadGate) -> None:
        self._gate = gate
        self._nonce = new_nonce()

    def greeting(self) -> bytes:
        """The first bytes that the reader sees."""
        return wire.Greeting(self._gate.incarnation, self._nonce, self._gate.region.size).pack()

    def answer(self, request: wire.Request, ranges: bytes, refuse: Callable[[], None]) -> Answer:
        """Checks incarnation, handle and proof, in this order, and begins the read (`refuse`: see `ReadGate`)."""
        if request.incarnation != self._gate.incarnation:
            return self._refusal(request, ReadStatus.STALE_INCARNATION)
        secret = self._gate.secret_of(request.tag)
        if secret is None:
            return self._refusal(request, ReadStatus.LEASE_EXPIRED)
        if not proof_holds(prove(secret, _READER, self._nonce, request.signed_part(), ranges), request.proof):
            return self._refusal(request, ReadStatus.BAD_PROOF)
        grant = self._gate.begin(secret, wire.unpack_ranges(ranges), refuse)
        if grant is None:
            return self._refusal(request, ReadStatus.LEASE_EXPIRED)
        statuses = wire.pack_statuses(grant.statuses)
        proof = prove(secret, _OWNER, self._nonce, request.nonce, statuses)
        reply = wire.Reply(ReadStatus.OK, request.sequence, request.count, proof)
        return Answer(reply.pack() + statuses, grant)

    def trailer(self, request: wire.Request, grant: Grant) -> bytes:
        """Ends the read; the last word on it."""
        status = ReadStatus.OK if self._gate.end(grant) else ReadStatus.LEASE_EXPIRED
        return wire.Trailer(status, request.sequence).pack()

    @staticmethod
    def _refusal(request: wire.Request, status: ReadStatus) -> Answer:
        return Answer(wire.Reply(status, request.sequence, 0, bytes(PROOF_BYTES)).pack(), None)


class ReaderSession:
    """The reader's end of one connection; used for one batch at a time."""

    def __init__(self, greeting: wire.Greeting) -> None:
        self.greeting = greeting
        self._sequence = 0
        self._nonce = b""

    def request(self, key: ReadKey, reads: Sequence[BlockRead], flags: int = 0) -> bytes:
        """The next request, with its ranges."""
        self._sequence += 1
        self._nonce = new_nonce()
        ranges = wire.pack_ranges(reads)
        unsigned = wire.Request(
            flags,
            self._sequence,
            len(reads),
            key.incarnation,
            handle_tag(key.handle_id),
            self._nonce,
            bytes(PROOF_BYTES),
        )
        signed = unsigned.signed_part()
        return signed + prove(key.handle_id, _READER, self.greeting.nonce, signed, ranges) + ranges

    def check_reply(self, key: ReadKey, reply: wire.Reply, statuses: bytes) -> ReadStatus:
        """OK only from an owner that knows the secret and answers this very request."""
        if reply.status is not ReadStatus.OK:
            return reply.status
        if reply.sequence != self._sequence or reply.count != len(statuses):
            return ReadStatus.PROTOCOL
        proof = prove(key.handle_id, _OWNER, self.greeting.nonce, self._nonce, statuses)
        return ReadStatus.OK if proof_holds(proof, reply.proof) else ReadStatus.BAD_PROOF

    def check_trailer(self, trailer: wire.Trailer) -> ReadStatus:
        """The last word, if it is on this request."""
        return trailer.status if trailer.sequence == self._sequence else ReadStatus.PROTOCOL

    def end(self) -> bytes:
        """Over `shm`: the blocks are touched no more."""
        return wire.Trailer(ReadStatus.OK, self._sequence).pack()
