"""Sampling slots: small numbers that are either free or held by one sequence."""


class SlotPool:
    """Slots 1..size-1; slot 0 is for sequences that need none."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = list(range(size - 1, 0, -1))

    @property
    def free(self) -> int:
        """Slots that can be taken."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Slots that are held."""
        return self._size - 1 - len(self._free)

    def take(self) -> int:
        """A free slot; there must be one."""
        return self._free.pop()

    def give(self, slot: int) -> None:
        """Returns a slot."""
        self._free.append(slot)
