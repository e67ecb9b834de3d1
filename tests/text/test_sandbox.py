"""What chat templates may use, and where they end."""

from datetime import datetime
from time import perf_counter

import pytest
from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.exceptions import SecurityError

from halfmoon.text.sandbox import RunawayTemplateError, compile_template, render_bounded


def render(source: str, **variables: object) -> str:
    return render_bounded(compile_template(source), variables)


RUNAWAYS = {
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "recursion": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "joining": "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "adding": "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "repeating": "{{ 'a' * 1000000000000 }}",
    "repeating a list": "{% for i in 1000000000 * [1] %}{% endfor %}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "output": "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
}


@pytest.mark.parametrize("source", RUNAWAYS.values(), ids=RUNAWAYS.keys())
def test_a_runaway_template_ends_soon(source: str) -> None:
    started = perf_counter()
    with pytest.raises(RunawayTemplateError):
        render(source)
    assert perf_counter() - started < 20


def test_the_bounds_are_for_one_rendering() -> None:
    template = compile_template("{% for i in range(90000) %}{% endfor %}done")
    assert [render_bounded(template, {}) for _ in range(8)] == ["done"] * 8


def test_python_is_out_of_reach() -> None:
    with pytest.raises(SecurityError):
        render("{{ ''.__class__.__mro__ }}")
    with pytest.raises(SecurityError):
        render("{{ messages.append(1) }}", messages=[])


def test_blocks_leave_no_lines_behind() -> None:
    assert render("a\n  {% if true %}\nb\n  {% endif %}\n") == "a\nb\n"


def test_loops_know_their_place_and_can_be_left() -> None:
    assert render("{% for i in [1, 2, 3] %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}") == (
        "1/3False 2/3False 3/3True "
    )
    loop = "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}"
    assert render(loop + "{% endfor %}") == "02"
    assert render("{% for m in messages if m.x %}{% else %}none{% endfor %}", messages=[{}]) == "none"
    assert render("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}") == "a1"
    assert render("{% for m in unknown %}{{ m }}{% endfor %}") == ""


def test_json_is_written_as_it_is() -> None:
    assert render("{{ x | tojson }}", x={"é": "<b>'"}) == '{"é": "<b>\'"}'
    assert render("{{ x | tojson(indent=1) }}", x=[1]) == "[\n 1\n]"


def test_the_date_can_be_asked_for() -> None:
    assert render("{{ strftime_now('%Y') }}") in {str(datetime.now().year), str(datetime.now().year - 1)}


def test_generation_blocks_stand_for_their_content() -> None:
    assert render("{% generation %}a{{ 1 }}{% endgeneration %}b") == "a1b"


def test_a_template_can_refuse() -> None:
    with pytest.raises(TemplateError, match="no system"):
        render("{{ raise_exception('no system') }}")


def test_what_is_no_template_is_refused() -> None:
    with pytest.raises(TemplateSyntaxError):
        compile_template("{% endfor %}")
