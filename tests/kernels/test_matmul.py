"""Products equal those in double precision, for every shape, and a column does not depend on its neighbours."""

import jax.numpy as jnp
import numpy as np
import pytest

from halfmoon.kernels.matmul import matmul, matmul_transposed
from tests.kernels.dense import Floats, normal

pytestmark = pytest.mark.usefixtures("kernels")

TOLERANCE = 2e-6
"""Of the product of the absolute values: rounding errors of sums of some thousand terms."""


def assert_product(found: object, weight: Floats, x: Floats) -> None:
    w64, x64 = weight.astype(np.float64), x.astype(np.float64)
    error = np.abs(np.asarray(found, np.float64) - w64 @ x64)
    assert (error <= TOLERANCE * (np.abs(w64) @ np.abs(x64))).all()


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 15, 16, 31, 32, 33, 64, 127])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (5, 37), (96, 64), (97, 33), (192, 576), (576, 1536)])
def test_equals_the_product_in_double_precision(outputs: int, inputs: int, columns: int) -> None:
    random = np.random.RandomState(outputs + columns)
    x, weight = normal(random, inputs, columns), normal(random, outputs, inputs)
    (product,) = matmul(jnp.asarray(x), jnp.asarray(weight))
    assert_product(product, weight, x)
    assert_product(matmul_transposed(jnp.asarray(x), jnp.asarray(weight)).T, weight, x)


def test_several_weights_are_multiplied_with_the_same_x() -> None:
    random = np.random.RandomState(0)
    x, weights = normal(random, 64, 8), [normal(random, outputs, 64) for outputs in (576, 192, 1, 100)]
    products = matmul(jnp.asarray(x), *map(jnp.asarray, weights))
    for product, weight in zip(products, weights, strict=True):
        assert_product(product, weight, x)


@pytest.mark.parametrize("columns", [2, 8, 32, 48])
def test_a_column_is_the_same_among_any_others(columns: int) -> None:
    random = np.random.RandomState(columns)
    x, weight = normal(random, 300, columns), jnp.asarray(normal(random, 100, 300))
    (together,) = matmul(jnp.asarray(x), weight)
    (reversed_order,) = matmul(jnp.asarray(x[:, ::-1]), weight)
    np.testing.assert_allclose(together, reversed_order[:, ::-1], rtol=1e-5, atol=1e-4)


def test_bfloat16_gives_bfloat16_but_float32_where_logits_are_wanted() -> None:
    random = np.random.RandomState(1)
    x, weight = (jnp.asarray(normal(random, *shape), jnp.bfloat16) for shape in ((64, 8), (32, 64)))
    (product,) = matmul(x, weight)
    assert product.dtype == jnp.bfloat16
    logits = matmul_transposed(x, weight)
    assert logits.dtype == jnp.float32
    assert_product(logits.T, np.asarray(weight, np.float32), np.asarray(x, np.float32))
