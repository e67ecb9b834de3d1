"""Sampling slots: small numbers that are either free or held by one sequence."""

from collections.abc import Collection

from halfmoon.engine.scheduler import Scheduler
from halfmoon.engine.sequence import Sequence
from halfmoon.runner.runner import Runner


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


class SamplingSlots:
    """Gives slots to sequences whose parameters adjust logits, and fills them on the device."""

    def __init__(self, runner: Runner, scheduler: Scheduler) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._pool = SlotPool(runner.config.slots)

    @property
    def used(self) -> int:
        """Slots that are held."""
        return self._pool.used

    def take(self, sequence: Sequence, *, spared: Collection[Sequence] = ()) -> None:
        """Gives a slot where one is needed; without a free one, a running sequence that is not `spared` loses its."""
        if sequence.slot or not sequence.params.adjusts_logits:
            return
        if not self._pool.free:
            self.give_back(next(each for each in self._scheduler.running if each.slot and each not in spared))
        sequence.slot = self._pool.take()
        job = sequence.job
        self._runner.fill_slot(sequence.slot, sequence.params, job.request.prompt, sequence.output, tuple(job.end_ids))

    def give_back(self, sequence: Sequence) -> None:
        """Frees the sequence's slot, if it has one."""
        if sequence.slot:
            self._pool.give(sequence.slot)
            sequence.slot = 0
