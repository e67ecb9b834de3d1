"""Numbers as the protocol can carry them; each check names the parameter."""

import math
from collections.abc import Sequence

from halfmoon.errors import InvalidRequestError

_UINT32 = (1 << 32) - 1
_UINT64 = (1 << 64) - 1
_FLOAT32 = 3.4028234663852886e38


def count(name: str, value: int) -> int:
    """A number of something: an unsigned 32-bit integer."""
    if not 0 <= value <= _UINT32:
        raise InvalidRequestError(f"{name} must be between 0 and {_UINT32}, not {_shown(value)}", param=name)
    return value


def optional_count(name: str, value: int | None) -> int | None:
    """The same, or None where it is not given."""
    return None if value is None else count(name, value)


def signed(name: str, value: int) -> int:
    """A signed 32-bit integer."""
    if not -(1 << 31) <= value < 1 << 31:
        raise InvalidRequestError(f"{name} must fit 32 bits, not {_shown(value)}", param=name)
    return value


def seed(name: str, value: int) -> int:
    """A 64-bit integer, signed or not; a negative one stands for its two's complement."""
    if not -(1 << 63) <= value <= _UINT64:
        raise InvalidRequestError(f"{name} must fit 64 bits, not {_shown(value)}", param=name)
    return value & _UINT64


def real(name: str, value: float) -> float:
    """A finite number that fits 32 bits."""
    if not abs(value) <= _FLOAT32:
        raise InvalidRequestError(f"{name} must be a number of ordinary size, not {value:g}", param=name)
    return value


def seconds(name: str, value: float) -> float:
    """A duration of more than nothing."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidRequestError(f"{name} must be a positive number of seconds, not {value:g}", param=name)
    return value


def token_ids(name: str, ids: Sequence[int]) -> Sequence[int]:
    """Ids that are unsigned 32-bit integers; whether the vocabulary has them, the router knows."""
    if ids and not (min(ids) >= 0 and max(ids) <= _UINT32):
        wrong = next(token for token in ids if not 0 <= token <= _UINT32)
        raise InvalidRequestError(f"{name}: {_shown(wrong)} is not a token id", param=name)
    return ids


def logit_bias(name: str, bias: dict[str, float]) -> dict[int, float]:
    """Biases by token id, from keys in decimal."""
    result: dict[int, float] = {}
    for key, value in bias.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= 10 and int(key) <= _UINT32):
            raise InvalidRequestError(f"{name}: key {key[:32]!r} is not a token id", param=name)
        result[int(key)] = real(name, value)
    return result


def _shown(value: int) -> str:
    return str(value) if -(1 << 70) < value < 1 << 70 else "a number of more than 70 bits"
