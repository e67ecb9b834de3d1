"""What the servicers of a worker work with."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from halfmoon.config import PageGeometry
from halfmoon.engine.engine import Engine

Plane = TypeVar("Plane")


@dataclass(frozen=True, slots=True)
class TierParts(Generic[Plane]):
    """One engine, and the data plane beside it, of whatever type: `salt` begins the hash chain of its prompts."""

    engine: Engine
    plane: Plane
    geometry: PageGeometry
    salt: bytes
    vocab: int
