"""Names of models on the Hugging Face hub, as users write them."""

import re
from dataclasses import dataclass

_PART = r"[A-Za-z0-9_][\w.-]*"
_NAME = re.compile(
    rf"(?P<repo>{_PART}/{_PART})"
    r"(?:[:/](?P<file>[^@:]+\.gguf))?"
    r"(?:@(?P<revision>[^@:\s]+))?"
)


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository (`org/name`), the GGUF file in it if one is meant, and a branch, tag or commit (None: `main`)."""

    repo: str
    file: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        """As a user would write it."""
        file = f":{self.file}" if self.file else ""
        revision = f"@{self.revision}" if self.revision else ""
        return f"{self.repo}{file}{revision}"


def parse_hub_name(spec: str) -> HubName | None:
    """The hub name that `spec` is; None where it cannot be one.

    `org/name`, `org/name:FILE.gguf` or `org/name/FILE.gguf`, each with `@revision` at the end if one is wanted.
    """
    match = _NAME.fullmatch(spec)
    if match is None or ".." in spec:
        return None
    return HubName(match["repo"], match["file"], match["revision"])
