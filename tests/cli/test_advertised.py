"""Workers tell their peers an address that works."""

import pytest

from cli.advertised import advertised_host
from halfmoon.errors import ConfigError


def test_a_named_address_is_told_as_it_is() -> None:
    assert advertised_host("10.0.0.5", "10.0.0.2:7000") == "10.0.0.5"


def test_every_interface_becomes_the_one_towards_the_router() -> None:
    assert advertised_host("0.0.0.0", "127.0.0.1:7000") == "127.0.0.1"


def test_no_way_to_the_router_is_said() -> None:
    with pytest.raises(ConfigError, match="no way to the router"):
        advertised_host("0.0.0.0", "router.invalid:7000")
