"""What a changing set holds, for one reader that is told of changes alone."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContentChanges:
    """From one version to `version`; `whole` means that `stored` is everything."""

    version: int
    whole: bool
    stored: frozenset[bytes]
    removed: frozenset[bytes] = frozenset()


class ContentLog:
    """Remembers what the reader was told last. An answer that got lost is made good by the whole set."""

    def __init__(self) -> None:
        self._version = 0
        self._told: frozenset[bytes] = frozenset()

    def changes(self, since: int, contents: frozenset[bytes]) -> ContentChanges:
        """From version `since`, 0 for none, to `contents`, which hold now."""
        told, whole = self._told, since == 0 or since != self._version
        self._version += 1
        self._told = contents
        if whole:
            return ContentChanges(self._version, True, contents)
        if contents is told:
            return ContentChanges(self._version, False, frozenset())
        return ContentChanges(self._version, False, contents - told, told - contents)
