"""Environment variables for the libraries."""

from pathlib import Path

import pytest

from cli import environment


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALFMOON_CACHE", "/cache")


def test_compiled_programs_are_kept_in_the_cache_folder() -> None:
    variables: dict[str, str] = {}
    environment.prepare_jax(variables)
    assert Path(variables["JAX_COMPILATION_CACHE_DIR"]).parent == Path("/cache")


@pytest.mark.parametrize(("tpu", "dtype"), [(False, "float32"), (True, "bfloat16")])
def test_the_cpu_is_chosen_only_where_there_is_no_tpu_library(
    tpu: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "has_tpu_library", lambda: tpu)
    variables: dict[str, str] = {}
    environment.prepare_jax(variables)
    assert variables.get("JAX_PLATFORMS") == (None if tpu else "cpu")
    assert environment.default_dtype() == dtype


def test_what_the_user_has_set_stays() -> None:
    variables = {"JAX_PLATFORMS": "tpu", "GRPC_VERBOSITY": "DEBUG"}
    environment.prepare(variables)
    environment.prepare_jax(variables)
    assert (variables["JAX_PLATFORMS"], variables["GRPC_VERBOSITY"]) == ("tpu", "DEBUG")
