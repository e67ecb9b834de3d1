"""A request at one worker as a span, and what it goes through there as child spans, one after the other."""

from types import TracebackType
from typing import Self

from opentelemetry.trace import SpanKind

from halfmoon.telemetry.spans import Attributes, OpenSpan, span


class Phases:
    """A context manager: the request's span, current inside, and at most one open phase."""

    def __init__(self, name: str, attributes: Attributes) -> None:
        self._scope = span(name, attributes, kind=SpanKind.SERVER)
        self._phase: OpenSpan | None = None

    def __enter__(self) -> Self:
        self.request = self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave(error)
        self._scope.__exit__(kind, error, traceback)

    def enter(self, name: str, attributes: Attributes | None = None) -> OpenSpan:
        """The next phase; the one before ends."""
        self.leave()
        self._phase = OpenSpan(name, attributes, parent=self.request)
        return self._phase

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """Something happened in the present phase."""
        if self._phase is not None:
            self._phase.event(name, attributes)

    def leave(self, error: BaseException | None = None) -> None:
        """Ends the present phase, if there is one."""
        if self._phase is not None:
            self._phase.end(error)
            self._phase = None
