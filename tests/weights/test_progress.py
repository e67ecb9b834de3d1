"""What the console shows on a terminal and in a log."""

import io

from halfmoon.weights import ConsoleProgress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_renews_itself() -> None:
    stream = Terminal()
    progress = ConsoleProgress(stream)
    progress.advance("Fetching", 0, 2_000_000)
    progress.advance("Fetching", 2_000_000, 2_000_000)
    assert stream.getvalue() == ("\r\x1b[KFetching: 0.0 of 2.0 MB (0 %)\r\x1b[KFetching: 2.0 of 2.0 MB (100 %)\n")


def test_a_log_gets_plain_lines_no_oftener_than_the_interval() -> None:
    stream = io.StringIO()
    progress = ConsoleProgress(stream, interval=60.0)
    for done in range(0, 1_000_001, 1000):
        progress.advance("Fetching", done, 1_000_000)
    assert stream.getvalue().splitlines() == ["Fetching: 0.0 of 1.0 MB (0 %)", "Fetching: 1.0 of 1.0 MB (100 %)"]


def test_a_note_never_shares_a_line_with_the_advance() -> None:
    stream = Terminal()
    progress = ConsoleProgress(stream)
    progress.advance("Fetching", 1, 2_000_000)
    progress.note("waiting for another process")
    assert stream.getvalue().endswith("(0 %)\nwaiting for another process\n")
