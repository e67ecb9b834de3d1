"""Ports: free ones, and those in use."""

import socket

import pytest

from cli.preflight.ports import check_free, free_ports
from halfmoon.errors import ConfigError


def test_a_port_in_use_is_refused_with_the_flag_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port} .* choose another --port"):
            check_free("127.0.0.1", port, "--port")


def test_a_port_that_was_just_given_back_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
    check_free("127.0.0.1", port, "--port")


def test_a_host_that_is_not_ours_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        check_free("192.0.2.1", 0, "--host")


def test_free_ports_differ_and_can_be_listened_on() -> None:
    taken = free_ports(3)
    ports = free_ports(20, taken=tuple(taken))
    assert len({*ports, *taken}) == 23
    for port in ports:
        check_free("127.0.0.1", port, "--port")
