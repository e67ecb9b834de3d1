"""One compiled runner for all tests of this folder."""

import pytest

from halfmoon.runner.runner import Runner
from tests.runner.small import make_runner


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return make_runner(tmp_path_factory.mktemp("runner"))
