"""Log lines: one a fact, with fields."""

import io
import logging
import re
from collections.abc import Iterator

import pytest

from halfmoon.telemetry import FieldLogger, setup_logging


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers = []
    stream = io.StringIO()
    setup_logging("router", stream=stream)
    yield stream
    root.handlers, root.level = before, level


def test_a_line_holds_time_level_program_message_and_fields(output: io.StringIO) -> None:
    logging.getLogger("x").info("request %s", "ended", extra={"request_id": "r1", "tokens": 3, "seconds": 0.12345678})
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} INFO router  request ended request_id=r1 tokens=3 seconds=0.123457\n",
        output.getvalue(),
    )


def test_values_with_spaces_are_quoted_and_none_is_left_out(output: io.StringIO) -> None:
    logging.getLogger("x").warning("odd", extra={"stop": "a b\n", "empty": "", "nothing": None})
    assert output.getvalue().endswith('WARNING router  odd stop="a b\\n" empty=""\n')


def test_a_message_stays_on_one_line(output: io.StringIO) -> None:
    logging.getLogger("x").info("one\ntwo")
    assert output.getvalue().endswith("  one two\n")


def test_a_field_logger_adds_its_fields_to_those_of_the_call(output: io.StringIO) -> None:
    FieldLogger(logging.getLogger("x"), request_id="r1").info("accepted", extra={"worker": "p0"})
    assert output.getvalue().endswith("accepted request_id=r1 worker=p0\n")


def test_a_traceback_follows_the_line(output: io.StringIO) -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("x").exception("failed", extra={"request_id": "r1"})
    first, *rest = output.getvalue().splitlines()
    assert first.endswith("failed request_id=r1")
    assert rest[-1] == "ValueError: boom"
