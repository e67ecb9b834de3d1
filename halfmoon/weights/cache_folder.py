"""Where Halfmoon keeps what it fetched for the user."""

import os
from pathlib import Path

from halfmoon.errors import ModelError


def cache_folder() -> Path:
    """The user's cache folder: `HALFMOON_CACHE`, else `halfmoon` in `XDG_CACHE_HOME`, else `~/.cache/halfmoon`."""
    if chosen := os.environ.get("HALFMOON_CACHE"):
        return Path(chosen).expanduser().absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).expanduser().absolute() / "halfmoon"
    try:
        return Path.home() / ".cache" / "halfmoon"
    except RuntimeError as error:
        raise ModelError("no home folder to keep models in: set HALFMOON_CACHE to a folder you may write to") from error
