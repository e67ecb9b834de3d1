"""Rules for all tests: in CI, where everything that tests need is installed, a skipped test is a failed one."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from cli.environment import prepare, prepare_jax
from halfmoon.weights import fetch_default_model

# Before the first import of jax. Programs that tests start inherit it.
prepare()
prepare_jax()  # compiled programs are kept, as the programs keep theirs

# A busy machine is no failure: whole tests have a time limit, single examples have none.
settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")

IN_CI = os.environ.get("CI", "").lower() not in {"", "0", "false"}


def fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turns the report of a skip (but not of an expected failure) into a failure that says why it was skipped."""
    if report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports of tests."""
    report = yield
    if IN_CI:
        fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Reports of modules, which skip as a whole where an import is missing."""
    report = yield
    if IN_CI:
        fail_if_skipped(report)
    return report


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The GGUF file of the default model, downloaded into the user's cache folder unless it is there."""
    return fetch_default_model()
