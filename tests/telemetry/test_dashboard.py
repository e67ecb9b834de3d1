"""The Grafana dashboard asks for metrics and labels that exist."""

import json
import re

import pytest

from tests.telemetry.metrics_page import ROOT, all_documented

DASHBOARD = json.loads((ROOT / "deploy/grafana/halfmoon.json").read_text())
SERIES = {series: row for row in all_documented().values() for series in row.series}
BY_PROMETHEUS = {"instance", "job", "le"}

_SELECTOR = re.compile(r"\b(halfmoon_\w+|vllm:\w+)(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")


def panels() -> list[dict[str, object]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_uses_metrics_and_labels_that_exist(query: str) -> None:
    selectors = _SELECTOR.findall(query)
    assert selectors
    known = set(BY_PROMETHEUS)
    for series, matchers in selectors:
        assert series in SERIES
        labels = set(re.findall(r"(\w+)\s*(?:=|!=|=~)", matchers))
        assert labels <= SERIES[series].labels
        known |= SERIES[series].labels
    grouped = {label.strip() for labels in _GROUPING.findall(query) for label in labels.split(",")}
    assert grouped <= known


@pytest.mark.parametrize("query", QUERIES)
def test_counters_are_read_as_rates(query: str) -> None:
    for series, matchers in _SELECTOR.findall(query):
        if SERIES[series].kind != "gauge":
            selector = f"{series}{{{matchers}}}" if matchers else series
            assert re.search(rf"(rate|increase)\({re.escape(selector)}\[", query)


def test_panels_have_titles_of_their_own_and_do_not_overlap() -> None:
    titles = [panel["title"] for panel in panels()]
    assert len(titles) == len(set(titles)) > 15
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert cells.isdisjoint(mine)
        cells |= mine
