"""Reads optimised HLO: which instructions make a new array as large as a cache."""

import re
from math import prod

_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?(?P<name>\S+) = \w+\[(?P<dims>[\d,]+)\]\S* (?P<opcode>[\w-]+)\(")
_IN_PLACE = frozenset(
    {"parameter", "get-tuple-element", "bitcast", "while", "conditional", "call", "fusion", "dynamic-update-slice"}
)
"""Pass an array on or change a part of it where it lies. A fusion is judged by the instructions inside it."""

_ALIAS = re.compile(r"\(\d+, \{\}, (?:may|must)-alias\)")


def cache_sized_results(hlo: str, cache_shape: tuple[int, ...]) -> list[str]:
    """Instructions that make an array with as many elements as one cache array: copies, transposes, scatters, ..."""
    found = []
    for line in hlo.splitlines():
        match = _INSTRUCTION.match(line)
        if match is None or match["opcode"] in _IN_PLACE:
            continue
        if prod(map(int, match["dims"].split(","))) == prod(cache_shape):
            found.append(f"{match['opcode']} {match['name']} [{match['dims']}]")
    return found


def donated_arguments(hlo: str) -> int:
    """Arguments whose memory the program's results take over."""
    return len(_ALIAS.findall(hlo.splitlines()[0]))
