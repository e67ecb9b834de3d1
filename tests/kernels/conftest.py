"""Every implementation of an operation passes the operation's tests."""

from collections.abc import Iterator

import pytest

from halfmoon.kernels.choice import choose_kernels


@pytest.fixture(params=["auto", "xla"])
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    choose_kernels(request.param)
    yield
    choose_kernels("auto")
