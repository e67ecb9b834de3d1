"""Lines that tests want to have said at the end of a run, whether they passed or not."""

from collections.abc import Callable

import pytest

Report = Callable[[str], None]

_lines: list[str] = []


@pytest.fixture
def report() -> Report:
    """Adds a line to the summary of the run."""
    return _lines.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says them."""
    for line in _lines:
        terminalreporter.write_line(line)
