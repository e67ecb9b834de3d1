"""Who waits for host blocks, and in which order they get them."""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from halfmoon.config import RETRY_AFTER
from halfmoon.errors import OverloadedError
from kvtransfer.core.pool import BlockOwner, BlockPool


class Lane(Enum):
    """Two lines before one pool. Pulls go first: they free what they take as soon as the engine has read it."""

    PULL = "pull"
    OFFER = "offer"


class Outcome(Enum):
    """How a wait ended; WAITING while it has not."""

    WAITING = "waiting"
    GRANTED = "granted"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


@dataclass(eq=False, slots=True)
class Ticket:
    """A place in line for `least` to `most` blocks until `deadline`. `blocks` are the ones granted."""

    owner: BlockOwner
    lane: Lane
    least: int
    most: int
    deadline: float
    outcome: Outcome = Outcome.WAITING
    blocks: tuple[int, ...] = ()


class Spare(Protocol):
    """Blocks that have an owner who gives them up when they are needed."""

    @property
    def spare_count(self) -> int:
        """How many."""

    def drop(self, count: int) -> None:
        """Frees so many of them, at once."""


class BlockQueue:
    """First come, first served in each lane; a request at the head that does not fit yet holds up those behind it.

    Offers leave the last `reserve` blocks alone, so that pulls always move on. At most `bound` requests wait in a lane.
    Blocks of `spare` are as good as free ones, and are taken when those are used up.
    """

    def __init__(self, pool: BlockPool, *, reserve: int = 0, bound: int = 1024, spare: Spare | None = None) -> None:
        self._pool = pool
        self._spare = spare
        self._reserve = reserve
        self._bound = bound
        self._lanes: dict[Lane, deque[Ticket]] = {lane: deque() for lane in Lane}

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return sum(len(lane) for lane in self._lanes.values())

    def capacity(self, lane: Lane) -> int:
        """The most blocks that a request in this lane can ever get."""
        return self._pool.total - (self._reserve if lane is Lane.OFFER else 0)

    def join(self, ticket: Ticket) -> None:
        """Puts a ticket in line; `advance` grants it. Raises OverloadedError when the line is full."""
        lane = self._lanes[ticket.lane]
        if len(lane) >= self._bound:
            raise OverloadedError(
                f"{len(lane)} {ticket.lane.value}s wait for host blocks already", retry_after=RETRY_AFTER
            )
        lane.append(ticket)

    def leave(self, ticket: Ticket) -> None:
        """Takes a waiting ticket out of line; does nothing to one whose wait has ended."""
        if ticket.outcome is Outcome.WAITING:
            self._lanes[ticket.lane].remove(ticket)
            ticket.outcome = Outcome.WITHDRAWN

    def advance(self, now: float) -> list[Ticket]:
        """Ends the waits that can end at `now`, and returns their tickets."""
        settled = self._expire(now)
        for lane in (Lane.PULL, Lane.OFFER):
            settled += self._grant(lane)
        return settled

    def _expire(self, now: float) -> list[Ticket]:
        late = [ticket for lane in self._lanes.values() for ticket in lane if ticket.deadline <= now]
        for ticket in late:
            self._lanes[ticket.lane].remove(ticket)
            ticket.outcome = Outcome.EXPIRED
        return late

    def _grant(self, lane: Lane) -> list[Ticket]:
        line, granted = self._lanes[lane], []
        while line and self._room(lane) >= line[0].least:
            ticket = line.popleft()
            count = min(ticket.most, self._room(lane))
            if self._spare is not None and count > self._pool.free_count:
                self._spare.drop(count - self._pool.free_count)
            ticket.blocks = self._pool.allocate(count, ticket.owner)
            ticket.outcome = Outcome.GRANTED
            granted.append(ticket)
        return granted

    def _room(self, lane: Lane) -> int:
        spare = self._spare.spare_count if self._spare is not None else 0
        return self._pool.free_count + spare - (self._reserve if lane is Lane.OFFER else 0)
