"""What the hub's library reports, as one line that says what to do."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from httpx2 import HTTPError
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from halfmoon.errors import ModelError
from halfmoon.weights.hub_name import HubName

_LONGEST_REASON = 200


@contextmanager
def told_in_one_line(name: HubName) -> Iterator[None]:
    """Turns the library's errors, and those of network and disk beneath it, into a ModelError."""
    try:
        yield
    except (HTTPError, OSError, HFValidationError) as error:
        raise ModelError(_told(name, error)) from error


def _told(name: HubName, error: Exception) -> str:
    """The cases from the most exact to the least; the library's classes inherit from each other."""
    match error:
        case GatedRepoError():
            return f"{name.repo} is gated: accept its terms at {constants.ENDPOINT}/{name.repo}, then {_token_advice()}"
        case RepositoryNotFoundError():
            return (
                f"there is no folder, file or hub model {name.repo}, or it is private: check it, or {_token_advice()}"
            )
        case RevisionNotFoundError():
            return f"{name.repo} has no revision {name.revision or 'main'}: name a branch, a tag or a whole commit hash"
        case HfHubHTTPError() if error.response.status_code in (401, 403):
            return f"the hub refuses {name.repo} ({error.response.status_code}): {_token_advice()}"
        case HfHubHTTPError():
            return f"the hub at {constants.ENDPOINT} answers {error.response.status_code} for {name}: try again later"
        case OfflineModeIsEnabled():
            return f"{name} is not whole in {constants.HF_HUB_CACHE} and HF_HUB_OFFLINE is set: unset it to download"
        case HTTPError() | ConnectionError() | LocalEntryNotFoundError():
            return (
                f"cannot reach the hub at {constants.ENDPOINT} for {name} ({_reason(error)}): check the network, "
                "a proxy, HF_ENDPOINT, or name a folder or file on this machine"
            )
        case HFValidationError():
            return f"{name.repo!r} is no name of a hub model: {_reason(error)}"
        case _:
            return f"cannot keep {name} in {constants.HF_HUB_CACHE} ({_reason(error)}): free the disk or set HF_HOME"


def _token_advice() -> str:
    return "check that the token in HF_TOKEN may read it" if os.environ.get("HF_TOKEN") else "set HF_TOKEN to a token"


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:_LONGEST_REASON]
