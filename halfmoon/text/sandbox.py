"""Where chat templates run: Jinja as Hugging Face sets it up, without access to Python, and with bounds.

A template comes with the model. It may be wrong or hostile, so that its loops and calls are counted, and the sizes of
what it builds are limited.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_STEPS = 500_000
"""Turns of loops, and calls, that one rendering may take: no more than some seconds."""

MAX_SIZE = 16_000_000
"""Longest string or list that a template may build, and longest text that it may write, in characters or elements."""

MAX_EXPONENT = 1_000

_steps_left: ContextVar[int] = ContextVar("template_steps_left")


class RunawayTemplateError(TemplateError):
    """The template went past a bound."""


def compile_template(source: str) -> Template:
    """Raises jinja2.TemplateSyntaxError."""
    tree = _Bounds().visit(_ENVIRONMENT.parse(source))
    return Template.from_code(_ENVIRONMENT, _ENVIRONMENT.compile(tree), _ENVIRONMENT.make_globals(None))


def render_bounded(template: Template, variables: dict[str, object]) -> str:
    """Renders within the bounds; raises RunawayTemplateError past them, and whatever the template raises."""
    token = _steps_left.set(MAX_STEPS)
    try:
        return "".join(_limited(template.generate(variables)))
    finally:
        _steps_left.reset(token)


def _limited(pieces: Iterable[str]) -> Iterator[str]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_SIZE:
            raise RunawayTemplateError(f"writes more than {MAX_SIZE} characters")
        yield piece


def _spend(steps: int) -> None:
    left = _steps_left.get() - steps
    if left < 0:
        raise RunawayTemplateError(f"takes more than {MAX_STEPS} steps")
    _steps_left.set(left)


def _check_size(value: object) -> object:
    if isinstance(value, str | list | tuple) and len(value) > MAX_SIZE:
        raise RunawayTemplateError(f"builds a value of more than {MAX_SIZE} characters or elements")
    return value


def _counted(iterable: Iterable[object]) -> Sequence[object]:
    """The elements that a loop will visit, paid for in advance."""
    items = iterable if isinstance(iterable, list | tuple) else list(iterable)
    _spend(len(items))
    return items


class _Bounds(NodeTransformer):
    """Puts the two bounds that Jinja's sandbox has no hook for into a template: on loops, and on joined strings."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - the name that Jinja's visitors call
        node.iter = nodes.Filter(node.iter, "_counted", [], [], None, None, lineno=node.lineno)
        return self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - the name that Jinja's visitors call
        joined = self.generic_visit(node)
        return nodes.Filter(joined, "_check_size", [], [], None, None, lineno=node.lineno)


class _GenerationBlock(Extension):
    """`{% generation %} ... {% endgeneration %}`, which marks what the model wrote; it stands for its content here."""

    tags = {"generation"}  # noqa: RUF012 - declared as an instance's attribute by Jinja

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements inside the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """Counts calls and bounds what operators build."""

    intercepted_binops = frozenset(["+", "*", "**"])

    # Jinja's own signatures are of Any: these two are called by compiled templates alone.
    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A call written in a template."""
        _spend(1)
        return _check_size(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """`left operator right` where the operator can make large values."""
        if operator == "*":
            _check_product(left, right)
            _check_product(right, left)
        elif operator == "**" and abs(right) > MAX_EXPONENT:
            raise RunawayTemplateError(f"raises a number to a power above {MAX_EXPONENT}")
        return _check_size(super().call_binop(context, operator, left, right))


def _check_product(value: object, times: object) -> None:
    if isinstance(value, str | list | tuple) and isinstance(times, int) and len(value) * times > MAX_SIZE:
        raise RunawayTemplateError(f"builds a value of more than {MAX_SIZE} characters or elements")


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is, without the escapes for HTML that Jinja's own filter makes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _environment() -> _Environment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols])
    environment.filters.update(tojson=_tojson, _counted=_counted, _check_size=_check_size)
    environment.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
    return environment


_ENVIRONMENT = _environment()
