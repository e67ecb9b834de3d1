"""What a flag's text must look like: each function parses one kind of value or raises `ArgumentTypeError`."""

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from math import inf
from typing import TypeVar

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", re.IGNORECASE)

Value = TypeVar("Value")

SMALLEST_PAGE, LARGEST_PAGE = 8, 512
"""Bounds of --page-size, in tokens."""


def port(text: str) -> int:
    """A TCP port that can be listened on; 0 means any free one."""
    number = _integer(text)
    if not 0 <= number <= 65535:
        raise ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return number


def positive(text: str) -> int:
    """A whole number from 1."""
    number = _integer(text)
    if number < 1:
        raise ArgumentTypeError(f"{text!r} is less than 1")
    return number


def natural(text: str) -> int:
    """A whole number from 0."""
    number = _integer(text)
    if number < 0:
        raise ArgumentTypeError(f"{text!r} is less than 0")
    return number


def seconds(text: str) -> float:
    """A time in seconds, not negative and finite."""
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 <= value < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a time in seconds")
    return value


def factor(text: str) -> float:
    """A finite number greater than 0."""
    value = not_negative(text)
    if value == 0:
        raise ArgumentTypeError(f"{text!r} is not greater than 0")
    return value


def not_negative(text: str) -> float:
    """A finite number from 0."""
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= value < inf:
        raise ArgumentTypeError(f"{text!r} is not a finite number from 0")
    return value


def several(one: Callable[[str], Value]) -> Callable[[str], tuple[Value, ...]]:
    """Values of one type, separated by commas."""
    return lambda text: tuple(one(part.strip()) for part in text.split(","))


def byte_size(text: str) -> int:
    """A size in bytes, at least 1: "2GiB", "512 MiB", "1.5g" or plain bytes."""
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _UNITS[match[2].lower()]) if match and match[2].lower() in _UNITS else 0
    if size < 1:
        raise ArgumentTypeError(f"{text!r} is not a size; write it like 512MiB or 4GiB")
    return size


def size_or_none_of_it(text: str) -> int:
    """A size in bytes, 0 included."""
    return 0 if text.strip() == "0" else byte_size(text)


def page_size(text: str) -> int:
    """Tokens of a page: a power of two within bounds."""
    number = _integer(text)
    if not SMALLEST_PAGE <= number <= LARGEST_PAGE or number & (number - 1):
        raise ArgumentTypeError(f"{text!r} is not a power of two from {SMALLEST_PAGE} to {LARGEST_PAGE}")
    return number


def address(text: str) -> str:
    """HOST:PORT, with an IPv6 host in brackets."""
    host, colon, number = text.rpartition(":")
    if not colon or not host or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise ArgumentTypeError(f"{text!r} is not HOST:PORT")
    if port(number) == 0:
        raise ArgumentTypeError(f"{text!r} names port 0, which nothing can be reached at")
    return text


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a whole number") from None
