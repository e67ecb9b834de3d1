"""A process of a run, as its parent sees it and as it runs: commands come and answers go over a pipe."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from halfmoon.errors import DeadlineError, HalfmoonError, UnavailableError
from kvtransfer.environment import plane_environment

_ANSWER_SECONDS = 120.0
_END_SECONDS = 10.0
_SPAWN = multiprocessing.get_context("spawn")


class Worker:
    """A process that runs `main(pipe, *arguments)`. `main` must be a function of a module.

    With `as_plane` it gets the environment of a data-plane process.
    """

    def __init__(self, name: str, main: Callable[..., None], *arguments: object, as_plane: bool = False) -> None:
        self._name = name
        self._pipe, theirs = _SPAWN.Pipe()
        self._process: SpawnProcess = _SPAWN.Process(target=main, args=(theirs, *arguments), name=name, daemon=True)
        with _environment(plane_environment(os.environ) if as_plane else dict(os.environ)):
            self._process.start()
        theirs.close()

    def ask(self, command: object) -> object:
        """Sends a command and waits for the answer.

        Raises the error that the command ended with, UnavailableError when the process is gone, DeadlineError.
        """
        try:
            self._pipe.send(command)
            if not self._pipe.poll(_ANSWER_SECONDS):
                raise DeadlineError(f"{self._name} does not answer in {_ANSWER_SECONDS:.0f} s")
            answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise UnavailableError(f"{self._name} has ended") from error
        if isinstance(answer, HalfmoonError):
            raise answer
        return answer

    def close(self) -> None:
        """Ends the process; kills it when it does not end by itself."""
        self._pipe.close()
        self._process.join(_END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """A process that is spawned inside inherits it."""
    before = dict(os.environ)
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def answer_all(pipe: Connection, run: Callable[[object], object]) -> None:
    """In the process: answers every command with what `run` returns or fails with, until the parent is gone."""
    while True:
        try:
            command = pipe.recv()
        except EOFError:
            return
        try:
            answer = run(command)
        except HalfmoonError as error:
            answer = error
        pipe.send(answer)
