"""What a data-plane process needs in its environment before it starts."""

from collections.abc import Mapping

_TUNABLES = "GLIBC_TUNABLES"
_COPY = "glibc.cpu.x86_non_temporal_threshold=131072"
"""Copies from 128 KiB on are written past the processor's cache: the bytes that a copy overwrites need not be read
first, which makes copying blocks half as fast again where the C library takes them for small."""


def plane_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment with what speeds up copying; a setting that is there already stays."""
    present = inherited.get(_TUNABLES, "")
    if "x86_non_temporal_threshold" in present:
        return dict(inherited)
    return {**inherited, _TUNABLES: f"{present}:{_COPY}" if present else _COPY}
