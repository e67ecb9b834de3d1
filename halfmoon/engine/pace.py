"""How long prefill steps take, so that none keeps a new request, a cancellation or a running answer waiting.

A step over `tokens` positions with `context` positions before them takes about its bucket's time without context plus a
slope for each (token, context) pair. Both are measured once before READY; how far steps deviate from it, because the
cores are shared or the machine is busy, is followed by a moving average. Plain Python: times are passed in.
"""

from collections.abc import Mapping, Sequence

from halfmoon.runner.buckets import PrefillBucket

STEP_SECONDS = 0.35
"""What a prefill step may take."""

_SMOOTHING = 0.3
_SLOWEST, _FASTEST = 8.0, 0.5


class Pace:
    """Predicts prefill steps; without measurements every bucket is allowed."""

    def __init__(self, *, limit: float = STEP_SECONDS) -> None:
        self._limit = limit
        self._base: dict[PrefillBucket, float] = {}
        self._slope = 0.0
        self._factor = 1.0

    def calibrate(self, base: Mapping[PrefillBucket, float], *, deep: float, context: int) -> None:
        """Takes each bucket's seconds without context, and the largest one's (`deep`) with so much before it."""
        self._base = dict(base)
        largest = max(base, key=lambda bucket: bucket.tokens)
        self._slope = max(0.0, deep - base[largest]) / (largest.tokens * context)

    def predict(self, bucket: PrefillBucket, context: int) -> float:
        """Seconds that a step will take."""
        return self._factor * self._nominal(bucket, context)

    def observe(self, bucket: PrefillBucket, context: int, seconds: float) -> None:
        """Takes what a step took."""
        nominal = self._nominal(bucket, context)
        if nominal > 0:
            factor = self._factor + _SMOOTHING * (seconds / nominal - self._factor)
            self._factor = min(_SLOWEST, max(_FASTEST, factor))

    def allowed(self, buckets: Sequence[PrefillBucket], context: int, *, at_least: int) -> tuple[PrefillBucket, ...]:
        """The buckets, by rising size, that keep to the limit; those up to `at_least` tokens are always allowed."""
        return tuple(each for each in buckets if each.tokens <= at_least or self.predict(each, context) <= self._limit)

    def _nominal(self, bucket: PrefillBucket, context: int) -> float:
        return self._base.get(bucket, 0.0) + self._slope * bucket.tokens * context
