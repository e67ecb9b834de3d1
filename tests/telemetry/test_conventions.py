"""Names from the semantic conventions are those of the pinned release."""

import importlib
from importlib.metadata import version

import pytest

from halfmoon.telemetry import conventions

MODULES = (
    "opentelemetry.semconv.attributes.http_attributes",
    "opentelemetry.semconv.attributes.error_attributes",
    "opentelemetry.semconv.attributes.service_attributes",
    "opentelemetry.semconv._incubating.attributes.gen_ai_attributes",
    "opentelemetry.semconv._incubating.attributes.rpc_attributes",
)
STANDARD = {
    value
    for module in map(importlib.import_module, MODULES)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
OURS = {name: value for name, value in vars(conventions).items() if name.isupper() and isinstance(value, str)}


def test_the_release_is_the_installed_one() -> None:
    assert conventions.SCHEMA_URL.endswith("/1.44.0")
    assert version("opentelemetry-semantic-conventions").startswith("0.66")


@pytest.mark.parametrize("name", [name for name, value in OURS.items() if "." in value and name != "SCHEMA_URL"])
def test_an_attribute_is_a_standard_one_or_begins_with_halfmoon(name: str) -> None:
    assert OURS[name] in STANDARD or OURS[name].startswith("halfmoon.")
