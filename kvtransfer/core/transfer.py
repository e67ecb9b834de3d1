"""The states of one pull."""

from dataclasses import dataclass, field
from enum import Enum

from halfmoon.errors import InternalError


class TransferState(Enum):
    """PENDING until the owner has answered, TRANSFERRING until an end."""

    PENDING = "PENDING"
    TRANSFERRING = "TRANSFERRING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


_FINAL = frozenset({TransferState.COMPLETE, TransferState.FAILED, TransferState.CANCELLED})


@dataclass(slots=True)
class Transfer:
    """PENDING -> TRANSFERRING -> COMPLETE, or FAILED or CANCELLED from either; the first end stands.

    PENDING ends at `pending_deadline`, TRANSFERRING at `deadline` at the latest. COMPLETE needs every block of `wanted`
    to have been marked as verified.
    """

    wanted: frozenset[int]
    pending_deadline: float
    deadline: float
    state: TransferState = TransferState.PENDING
    reason: str = ""
    verified: set[int] = field(default_factory=set)

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in _FINAL

    @property
    def state_deadline(self) -> float:
        """When the present state ends at the latest; infinite for a final one."""
        if self.ended:
            return float("inf")
        return min(self.pending_deadline, self.deadline) if self.state is TransferState.PENDING else self.deadline

    def begin(self) -> None:
        """The owner has answered."""
        if self.state is not TransferState.PENDING:
            raise InternalError(f"a transfer that is {self.state.value} cannot begin")
        self.state = TransferState.TRANSFERRING

    def mark_verified(self, block: int) -> None:
        """Block `block` of the handle has arrived, and nothing about it is in doubt."""
        if self.state is not TransferState.TRANSFERRING or block not in self.wanted or block in self.verified:
            raise InternalError(f"block {block} cannot be verified in a transfer that is {self.state.value}")
        self.verified.add(block)

    def complete(self) -> None:
        """All that was wanted is here. Raises InternalError when it is not."""
        missing = len(self.wanted) - len(self.verified)
        if self.state is not TransferState.TRANSFERRING or missing:
            raise InternalError(f"a transfer that is {self.state.value} with {missing} blocks missing is not complete")
        self.state = TransferState.COMPLETE

    def fail(self, reason: str) -> None:
        """Ends as FAILED unless it has ended."""
        self._end(TransferState.FAILED, reason)

    def cancel(self) -> None:
        """Ends as CANCELLED unless it has ended."""
        self._end(TransferState.CANCELLED, "cancelled")

    def run_out(self) -> None:
        """The deadline of the present state has come: ends as FAILED unless it has ended."""
        self.fail(f"{self.state.value} until its deadline")

    def _end(self, state: TransferState, reason: str) -> None:
        if not self.ended:
            self.state, self.reason = state, reason
