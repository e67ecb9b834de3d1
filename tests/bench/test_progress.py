"""Progress on a terminal and in a log."""

import io

from bench.progress import ConsoleProgress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


def run(stream: io.StringIO, *, interval: float) -> str:
    """What a level of three requests, one of which fails, prints."""
    progress = ConsoleProgress(stream, interval=interval)
    progress.begin("concurrency 2", 3)
    for failed in (False, True, False):
        progress.advance(failed)
    progress.end("5.0 output tokens/s")
    return stream.getvalue()


def test_a_terminal_has_one_line_that_ends_as_the_result() -> None:
    text = run(Terminal(), interval=0.0)
    assert "[..............................] concurrency 2: 0 of 3 requests" in text
    assert text.endswith("\r\x1b[Kconcurrency 2: 5.0 output tokens/s\n")
    assert text.count("\n") == 1


def test_a_log_has_plain_lines_an_interval_apart() -> None:
    lines = run(io.StringIO(), interval=0.0).splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "concurrency 2: 1 of 3 requests",
        "concurrency 2: 2 of 3 requests",
        "concurrency 2: 3 of 3 requests",
        "concurrency 2: 5.0 output tokens/s",
    ]
    assert lines[1].endswith("1 failed")
    assert run(io.StringIO(), interval=60.0).splitlines() == ["concurrency 2: 5.0 output tokens/s"]
