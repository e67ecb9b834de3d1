"""`docs/metrics.md` as data."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_ROW = re.compile(r"^\| `([\w:]+)` \| (\w+) \| ([^|]*)\| ([^|]*)\| ([^|]+)\|$", re.MULTILINE)
_HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


@dataclass(frozen=True)
class Documented:
    """One row; `labels` without those that all rows of its section have."""

    name: str
    kind: str
    labels: frozenset[str]

    @property
    def series(self) -> frozenset[str]:
        """The names under which samples are shown."""
        parts = _HISTOGRAM_PARTS if self.kind == "histogram" else ("",)
        return frozenset(self.name + part for part in parts)


def documented(section: str) -> dict[str, Documented]:
    """The rows of one section, by metric."""
    text = (ROOT / "docs/metrics.md").read_text()
    body = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = [
        Documented(name, kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, _, _ in _ROW.findall(body)
    ]
    assert len(rows) == len({row.name for row in rows}) == body.count("\n| `"), (
        f"{section} has rows that cannot be read"
    )
    return {row.name: row for row in rows}


def all_documented() -> dict[str, Documented]:
    """All rows of all sections."""
    sections = ("Gateway", "Router", "Workers", "Under vLLM's names")
    return {name: row for section in sections for name, row in documented(section).items()}
