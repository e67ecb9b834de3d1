"""The address under which a worker's peers can reach it."""

import socket

from halfmoon.errors import ConfigError

_EVERYWHERE = {"0.0.0.0": socket.AF_INET, "::": socket.AF_INET6}


def advertised_host(host: str, router: str) -> str:
    """`host`, or for a worker that listens on every interface the address by which it reaches `router` (host:port).

    Nothing is sent. Raises ConfigError when there is no way to the router: then --host has to name an address.
    """
    family = _EVERYWHERE.get(host)
    if family is None:
        return host
    name, _, port = router.rpartition(":")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((name.strip("[]"), int(port)))
        except OSError as error:
            raise ConfigError(
                f"--host {host}: no way to the router {router} ({error.strerror}); name an address"
            ) from error
        return str(probe.getsockname()[0])
