"""Finding stop strings in a stream of text."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from halfmoon.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class StopResult:
    """Text that may be sent, and the stop string that ended it (None: it goes on)."""

    text: str
    matched: str | None = None


@dataclass(slots=True)
class _Node:
    """A prefix of some stop string: `depth` characters long; `match` is the longest stop string that ends here."""

    depth: int = 0
    match: str | None = None
    children: dict[str, "_Node"] = field(default_factory=dict)
    fallback: "_Node | None" = None


class StopMatcher:
    """Cuts one choice's text at the first stop string.

    The stop string that is complete first wins; of two that end together, the longer. So the result does not depend on
    how the text was cut into pieces. Only an end of the text that is a true prefix of a stop string is held back. The
    work for a character does not depend on the number of stop strings (an Aho-Corasick automaton).
    Raises InvalidRequestError for an empty stop string.
    """

    def __init__(self, stops: Sequence[str], *, include_in_output: bool = False) -> None:
        if "" in stops:
            raise InvalidRequestError("a stop string must not be empty", param="stop")
        self._root = _automaton(stops)
        self._node = self._root
        self._held = ""
        self._include = include_in_output
        self._matched: str | None = None

    def push(self, text: str) -> StopResult:
        """Text that is now certain. After a match every further text is dropped and the match reported again."""
        if self._matched is not None or not self._root.children:
            return StopResult("" if self._matched else text, self._matched)
        pending = self._held + text
        node = self._node
        for index, char in enumerate(text, start=len(self._held) + 1):
            node = _step(node, char)
            if node.match is not None:
                return self._end(pending[:index], node.match)
        self._node = node
        sure = len(pending) - node.depth
        self._held = pending[sure:]
        return StopResult(pending[:sure])

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held, self._node = self._held, "", self._root
        return held

    def _end(self, text: str, match: str) -> StopResult:
        self._matched = match
        self._held = ""
        return StopResult(text if self._include else text.removesuffix(match), match)


def _step(node: _Node, char: str) -> _Node:
    """The longest suffix of the text so far that is a prefix of a stop string, after one more character."""
    while True:
        child = node.children.get(char)
        if child is not None:
            return child
        if node.fallback is None:
            return node
        node = node.fallback


def _automaton(stops: Iterable[str]) -> _Node:
    root = _Node()
    for stop in stops:
        node = root
        for char in stop:
            node = node.children.setdefault(char, _Node(node.depth + 1))
        node.match = stop
    _link(root)
    return root


def _link(root: _Node) -> None:
    """Gives every node, in order of depth, its longest proper suffix in the trie, and the match that ends there."""
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for char, child in node.children.items():
            child.fallback = root if node.fallback is None else _step(node.fallback, char)
            child.match = child.match or child.fallback.match
            queue.append(child)
