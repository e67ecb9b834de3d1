"""Models from the Hugging Face hub, kept in the hub library's own cache (`HF_HOME`), shared with other programs."""

from collections.abc import Mapping
from glob import escape
from pathlib import Path

from httpx2 import HTTPError
from huggingface_hub import (
    HfApi,
    close_session,
    constants,
    get_cached_repo_tree,
    get_session,
    scan_cache_dir,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import (
    CachedRepoTreeNotFoundError,
    CacheNotFound,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
)
from huggingface_hub.hf_api import ModelInfo

from halfmoon.errors import ModelError
from halfmoon.weights.hub_errors import told_in_one_line
from halfmoon.weights.hub_files import needed_files
from halfmoon.weights.hub_name import HubName
from halfmoon.weights.hub_progress import byte_bar
from halfmoon.weights.progress import QUIET, Progress
from halfmoon.weights.safetensors_checkpoint import read_config

_SILENCE = 30.0
"""Seconds without an answer or a byte after which the hub counts as out of reach."""


def fetch_from_hub(name: HubName, *, progress: Progress = QUIET) -> Path:
    """The folder or GGUF file of the model, downloaded unless it is cached.

    Only what serving needs is fetched. Where the hub cannot be asked (HF_HUB_OFFLINE, no network, no rights any more),
    a model that is whole in the cache is used as it is. Several processes may fetch the same model at once. Raises
    ModelError: unknown, private or gated, out of reach, nothing that could be served, no room on the disk.
    """
    with told_in_one_line(name):
        get_session().timeout = _SILENCE
        try:
            return _fetch(name, progress)
        finally:
            close_session()


def cached_hub_models() -> Mapping[str, Path]:
    """Repositories of models in the hub library's cache, whole or not, and where they lie."""
    try:
        found = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except CacheNotFound:
        return {}
    return {
        repo.repo_id: repo.repo_path
        for repo in sorted(found, key=lambda repo: repo.repo_id)
        if repo.repo_type == "model"
    }


def _fetch(name: HubName, progress: Progress) -> Path:
    try:
        info = HfApi().model_info(name.repo, revision=name.revision, files_metadata=True, timeout=_SILENCE)
    except (HTTPError, OfflineModeIsEnabled) as error:
        cached = _cached(name)
        if cached is None:
            raise
        progress.note(f"using {name} as it is in the cache: the hub cannot be asked ({type(error).__name__})")
        return cached
    return _download(name, info, progress)


def _download(name: HubName, info: ModelInfo, progress: Progress) -> Path:
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    wanted = needed_files(name, sizes)
    missing = {file: sizes[file] for file in wanted if not _is_cached(name, file, info.sha)}
    if name.file is None and "config.json" in missing:
        read_config(_snapshot(name, ["config.json"], {}, QUIET))  # before gigabytes of a kind not supported
    folder = _snapshot(name, wanted, missing, progress)
    return folder / name.file if name.file else folder


def _snapshot(name: HubName, wanted: list[str], missing: Mapping[str, int], progress: Progress) -> Path:
    """The folder with the `wanted` files; the `missing` ones are those that have to come, with their sizes in bytes."""
    label, total = f"Downloading {name}", sum(missing.values())
    if missing:
        progress.advance(label, 0, total)
    folder = snapshot_download(
        name.repo,
        revision=name.revision,
        allow_patterns=[escape(file) for file in wanted],
        tqdm_class=byte_bar(lambda done: progress.advance(label, min(done, total - 1), total)),
    )
    if missing:
        progress.advance(label, total, total)
    return Path(folder)


def _cached(name: HubName) -> Path | None:
    """The model as the cache has it; None where it lacks anything that serving needs."""
    try:
        folder = Path(snapshot_download(name.repo, revision=name.revision, allow_patterns=[], local_files_only=True))
        wanted = needed_files(name, _cached_listing(name, folder))
    except (LocalEntryNotFoundError, ModelError):
        return None
    if not all((folder / file).is_file() for file in wanted):
        return None
    return folder / name.file if name.file else folder


def _cached_listing(name: HubName, folder: Path) -> list[str]:
    """What the repository holds; where no listing was kept, what of it is there."""
    try:
        return [file.path for file in get_cached_repo_tree(name.repo, revision=name.revision)]
    except CachedRepoTreeNotFoundError:
        return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def _is_cached(name: HubName, file: str, commit: str | None) -> bool:
    return isinstance(try_to_load_from_cache(name.repo, file, revision=commit), str)
