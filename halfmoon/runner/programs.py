"""Ahead-of-time compilation: every program of a worker is compiled once, before it is READY."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.monitoring
from jax.typing import DTypeLike

_COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"


class CompileCounter:
    """Counts XLA compilations of this process, cached ones included."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def since_now(self) -> Callable[[], int]:
        """A function that tells how many there were after this call."""
        before = self.count
        return lambda: self.count - before

    def _on_event(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        if event == _COMPILE_EVENT:
            self.count += 1


def shape_of(shape: tuple[int, ...], dtype: DTypeLike) -> jax.ShapeDtypeStruct:
    """Stands for an array that does not exist yet."""
    return jax.ShapeDtypeStruct(shape, dtype)


class Programs:
    """Compiled programs by key. A key that was not compiled is a KeyError: nothing compiles while serving."""

    def __init__(self) -> None:
        self._compiled: dict[Hashable, jax.stages.Compiled] = {}

    def compile(
        self, key: Hashable, function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = ()
    ) -> None:
        """Compiles `function` for the shapes of `arguments` (arrays or ShapeDtypeStructs)."""
        self._compiled[key] = jax.jit(function, donate_argnums=donate).lower(*arguments).compile()

    def __getitem__(self, key: Hashable) -> jax.stages.Compiled:
        return self._compiled[key]

    def texts(self) -> dict[Hashable, str]:
        """The optimised HLO of every program."""
        return {key: compiled.as_text() or "" for key, compiled in self._compiled.items()}
