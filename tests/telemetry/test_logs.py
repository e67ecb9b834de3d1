"""Log lines: one a fact, with fields, as text or as JSON."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from halfmoon.telemetry import FieldLogger, joined_trace, setup_logging

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = [("traceparent", f"00-{TRACE}-{CALLER}-01")]


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers = []
    stream = io.StringIO()
    setup_logging("router", stream=stream)
    yield stream
    root.handlers, root.level = before, level


@pytest.fixture
def json_output(output: io.StringIO) -> io.StringIO:
    setup_logging("router", stream=output, log_format="json")
    return output


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


def test_a_line_written_in_a_trace_tells_its_ids(output: io.StringIO) -> None:
    with joined_trace(TRACEPARENT):
        logging.getLogger("x").info("traced", extra={"request_id": "r1"})
    assert output.getvalue().endswith(f"traced request_id=r1 trace_id={TRACE} span_id={CALLER}\n")


def test_json_is_one_object_a_line_with_all_fields(json_output: io.StringIO) -> None:
    with joined_trace(TRACEPARENT):
        logging.getLogger("x").info("two\nlines, %s", "Grüße", extra={"request_id": "r1", "tokens": 3, "nothing": None})
    (line,) = json_output.getvalue().splitlines()
    found = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("time"))
    assert found == {
        "level": "INFO",
        "program": "router",
        "message": "two\nlines, Grüße",
        "request_id": "r1",
        "tokens": 3,
        "trace_id": TRACE,
        "span_id": CALLER,
    }


def test_a_traceback_is_one_field_of_the_object(json_output: io.StringIO) -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = json_output.getvalue().splitlines()
    assert json.loads(line)["exception"].endswith("ValueError: boom")


def test_values_that_are_not_json_are_written_as_text_and_no_field_hides_the_message(json_output: io.StringIO) -> None:
    logging.getLogger("x").warning("odd", extra={"error": KeyError("k"), "program": "other", "level": 3})
    found = json.loads(json_output.getvalue())
    assert (found["error"], found["program"], found["level"], found["message"]) == ("'k'", "router", "WARNING", "odd")
