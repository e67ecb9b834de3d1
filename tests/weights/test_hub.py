"""Models of the hub, fetched by the hub's own library from a hub on this machine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from halfmoon.errors import ModelError
from halfmoon.weights import open_checkpoint, resolve_model, served_name
from halfmoon.weights.hub import cached_hub_models
from tests.models.families import write_checkpoint, write_gguf
from tests.weights.fake_hub import COMMIT, TOKEN, FakeHub, Repository, running_hub
from tests.weights.recorder import Recorder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with one model, and the library pointed at it, as HF_ENDPOINT and HF_HOME do when it is imported."""
    with running_hub() as hub:
        hub.repositories["org/small"] = Repository(model_files(tmp_path))
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


def model_files(folder: Path) -> dict[str, bytes]:
    """A model as authors upload it, with much that serving does not need."""
    written = write_checkpoint("llama", folder / "written")
    gguf = write_gguf("qwen3", folder / "Small-Q8_0.gguf")
    return {
        **{path.name: path.read_bytes() for path in written.iterdir()},
        "Small-Q8_0.gguf": gguf.read_bytes(),
        "sub/Other.gguf": gguf.read_bytes(),
        "tokenizer.json": b"{ }",
        "chat_template.jinja": b"hi",
        "generation_config.json": b'{"top_k": 20}',
        "README.md": b"# Small",
        "pytorch_model.bin": b"pickle",
        "original/model.safetensors": b"once more",
    }


NEEDED = {"config.json", "generation_config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"}


def test_a_name_becomes_a_folder_with_what_serving_needs_and_no_more(hub: FakeHub) -> None:
    folder = resolve_model("org/small")
    assert set(hub.sent) == {path.name for path in folder.iterdir()} == NEEDED
    assert open_checkpoint(folder).config["model_type"] == "llama"


def test_what_is_cached_is_not_sent_again(hub: FakeHub) -> None:
    first = resolve_model("org/small")
    hub.sent.clear()
    progress = Recorder()
    assert resolve_model("org/small", progress=progress) == first
    assert (hub.sent, progress.calls) == ([], [])


def test_one_missing_file_alone_is_sent(hub: FakeHub) -> None:
    folder = resolve_model("org/small")
    (folder / "chat_template.jinja").resolve().unlink()
    hub.sent.clear()
    resolve_model("org/small")
    assert hub.sent == ["chat_template.jinja"]


def test_a_download_that_breaks_off_goes_on_where_it_stopped(hub: FakeHub) -> None:
    hub.breaks = 2
    path = resolve_model("org/small:Small-Q8_0.gguf")
    assert path.read_bytes() == hub.repositories["org/small"].files["Small-Q8_0.gguf"]
    assert len(hub.sent) == 3


def test_progress_grows_to_the_size_of_all_files(hub: FakeHub) -> None:
    progress = Recorder()
    resolve_model("org/small", progress=progress)
    total = sum(len(body) for name, body in hub.repositories["org/small"].files.items() if name in NEEDED)
    assert progress.calls[0] == ("Downloading org/small", 0, total)
    assert progress.calls[-1] == ("Downloading org/small", total, total)
    done = [call[1] for call in progress.calls]
    assert done == sorted(done)
    assert len(done) > 3


@pytest.mark.parametrize(
    ("spec", "file"),
    [
        ("org/small:Small-Q8_0.gguf", "Small-Q8_0.gguf"),
        ("org/small/Small-Q8_0.gguf", "Small-Q8_0.gguf"),
        ("org/small:sub/Other.gguf@v1", "sub/Other.gguf"),
    ],
)
def test_one_gguf_file_can_be_chosen(hub: FakeHub, spec: str, file: str) -> None:
    path = resolve_model(spec)
    assert hub.sent == [file]
    assert str(path).endswith(file)
    assert open_checkpoint(path).config["model_type"] == "qwen3"


@pytest.mark.parametrize(
    ("spec", "revision"), [("org/small@v1", None), ("org/small", "v1"), ("org/small@old", "v1"), ("org/small", COMMIT)]
)
def test_a_revision_is_part_of_the_name_or_given_apart(hub: FakeHub, spec: str, revision: str | None) -> None:
    assert resolve_model(spec, revision=revision).name == COMMIT


@pytest.mark.parametrize("spec", ["org/small", "org/small@v1", "org/small:Small-Q8_0.gguf"])
def test_clients_call_a_model_by_its_name_on_the_hub(spec: str) -> None:
    assert served_name(spec) == "org/small"


def test_shards_are_sent_with_their_index_and_a_copy_in_one_file_is_not(hub: FakeHub) -> None:
    files = hub.repositories["org/small"].files
    files |= {"model.safetensors.index.json": b"{}", "model-00001-of-00002.safetensors": b"1"}
    files |= {"model-00002-of-00002.safetensors": b"2", "consolidated.safetensors": b"12"}
    folder = resolve_model("org/small")
    weights = {path.name for path in folder.iterdir()} - NEEDED
    assert weights == {"model.safetensors.index.json", *(name for name in files if name.startswith("model-0"))}
    assert not (folder / "model.safetensors").exists()


def test_a_folder_of_the_same_name_comes_first(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org/small").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve_model("org/small") == tmp_path / "org/small"
    assert hub.sent == []


def test_a_token_opens_a_gated_model(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["org/small"].gated = True
    with pytest.raises(
        ModelError, match=rf"org/small is gated: accept its terms at {hub.url}/org/small, then set HF_TOK"
    ):
        resolve_model("org/small")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(ModelError, match=r"org/small is gated: .*check that the token in HF_TOKEN may read it"):
        resolve_model("org/small")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert (resolve_model("org/small") / "config.json").is_file()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("org/none", "there is no folder, file or hub model org/none, or it is private: check it, or set HF_TOKEN"),
        ("org/small@v9", "org/small has no revision v9: name a branch, a tag or a whole commit hash"),
        ("org/small:Big.gguf", r"org/small has no file Big\.gguf: it has Small-Q8_0\.gguf, sub/Other\.gguf"),
        ("org/gguf", r"org/gguf holds GGUF files: name one of them, like org/gguf:m-Q4_0\.gguf \(there are .*Q8_0"),
        ("org/torch", "org/torch holds PyTorch weights only: use a model with safetensors or GGUF files"),
        ("org/empty", "org/empty holds neither safetensors with a config.json nor GGUF files"),
        ("org/untold", r"org/untold holds no tokenizer\.json, which serving needs"),
        ("org/bad--name", "is no name of a hub model"),
    ],
)
def test_what_cannot_be_fetched_is_one_line(hub: FakeHub, spec: str, message: str) -> None:
    hub.repositories |= {
        "org/gguf": Repository({"m-Q8_0.gguf": b"8", "m-Q4_0.gguf": b"4", "config.json": b"{}"}),
        "org/torch": Repository({"config.json": b"{}", "pytorch_model.bin": b"pickle"}),
        "org/empty": Repository({"README.md": b""}),
        "org/untold": Repository({"config.json": b"{}", "model.safetensors": b""}),
    }
    with pytest.raises(ModelError, match=message) as error:
        resolve_model(spec)
    assert "\n" not in error.value.message
    assert hub.sent == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (b'{"architectures": ["MambaForCausalLM"], "model_type": "mamba"}', "MambaForCausalLM is not supported"),
        (b'{"model_type": "llama", "quantization_config": {"quant_method": "awq"}}', "quantised by awq"),
    ],
)
def test_an_unsupported_model_is_refused_before_its_weights_are_sent(hub: FakeHub, config: bytes, message: str) -> None:
    hub.repositories["org/small"].files["config.json"] = config
    with pytest.raises(ModelError, match=message):
        resolve_model("org/small")
    assert hub.sent == ["config.json"]


def test_what_is_cached_is_listed(hub: FakeHub, tmp_path: Path) -> None:
    assert cached_hub_models() == {}
    resolve_model("org/small")
    assert cached_hub_models() == {"org/small": tmp_path / "cache/models--org--small"}


def test_offline_uses_what_is_whole_in_the_cache(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"org/small is not whole in .* and HF_HUB_OFFLINE is set: unset it"):
        resolve_model("org/small")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    folder = resolve_model("org/small")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    progress = Recorder()
    assert resolve_model("org/small", progress=progress) == folder
    assert progress.notes == ["using org/small as it is in the cache: the hub cannot be asked (OfflineModeIsEnabled)"]
    with pytest.raises(ModelError, match="is not whole"):
        resolve_model("org/small:Small-Q8_0.gguf")
    (folder / "model.safetensors").resolve().unlink()
    with pytest.raises(ModelError, match="is not whole"):
        resolve_model("org/small")


def test_a_hub_out_of_reach_is_one_line_unless_the_model_is_cached(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = resolve_model("org/small")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert resolve_model("org/small") == folder
    with pytest.raises(ModelError, match=r"cannot reach the hub at http://127\.0\.0\.1:1 for org/other \(.*refused"):
        resolve_model("org/other")


def test_a_hub_that_fails_is_one_line_with_its_status(hub: FakeHub) -> None:
    hub.status = 503
    with pytest.raises(ModelError, match=r"answers 503 for org/small: try again later"):
        resolve_model("org/small")


def test_a_revision_of_what_is_no_hub_model_is_refused(tmp_path: Path) -> None:
    for spec in (None, str(tmp_path)):
        with pytest.raises(ModelError, match="--revision v1 is for models of the hub"):
            resolve_model(spec, revision="v1")


def test_two_programs_that_fetch_at_once_share_the_cache(hub: FakeHub, tmp_path: Path) -> None:
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": TOKEN}
    hub.repositories["org/small"].gated = True
    command = [sys.executable, "-m", "cli.main", "models", "fetch", "org/small"]
    fetching = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ended = [program.communicate(timeout=60) for program in fetching]
    (first, log), (second, _) = ended
    assert first == second, ended
    assert {path.name for path in Path(first.strip()).iterdir()} == NEEDED
    assert Path(first.strip()).is_relative_to(tmp_path / "home")
    assert "Downloading org/small: 0.0 of " in log
