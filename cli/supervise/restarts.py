"""When a program that died is started again, and when its supervisor gives up."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Delays in seconds. A program that ran for `healthy_after` starts over with `first_delay`.

    `attempts` is the number of times that a program may die before it was ever ready; later it may die any number.
    """

    first_delay: float = 0.5
    growth: float = 2.0
    longest_delay: float = 30.0
    healthy_after: float = 60.0
    attempts: int = 3


class RestartHistory:
    """How one program has fared under a policy. Pure: times are handed in."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._in_a_row = 0
        self._was_ready = False

    def ready(self) -> None:
        """The program has been ready."""
        self._was_ready = True

    def died(self, ran_for: float) -> float | None:
        """Seconds to wait before the next start, or None when no further start makes sense."""
        policy = self._policy
        if ran_for >= policy.healthy_after:
            self._in_a_row = 0
        self._in_a_row += 1
        if not self._was_ready and self._in_a_row >= policy.attempts:
            return None
        return min(policy.longest_delay, policy.first_delay * policy.growth ** min(self._in_a_row - 1, 64))
