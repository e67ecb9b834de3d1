"""Metrics: several programs in one process, values as recorded, and the HTTP server."""

import threading
import time
import urllib.error
import urllib.request

import pytest

from halfmoon.errors import ConfigError, InternalError
from halfmoon.telemetry import Metrics, serve_metrics


def lines(metrics: Metrics) -> list[str]:
    return [line for line in metrics.render().decode().splitlines() if not line.startswith("#")]


def test_two_programs_in_one_process_do_not_see_each_other() -> None:
    first, second = Metrics("router"), Metrics("gateway")
    first.counter("halfmoon_things", "Things.").add(3)
    second.counter("halfmoon_things", "Things.").add(5)
    assert lines(first) == ["halfmoon_things_total 3.0"]
    assert lines(second) == ["halfmoon_things_total 5.0"]


def test_counters_and_sums_keep_labels_apart() -> None:
    metrics = Metrics("router")
    counter = metrics.counter("halfmoon_requests", "Requests.")
    counter.add(outcome="ok")
    counter.add(outcome="ok")
    counter.add(outcome="failed")
    running = metrics.up_down("halfmoon_running", "Running.")
    running.add(1)
    running.add(-1)
    assert sorted(lines(metrics)) == [
        'halfmoon_requests_total{outcome="failed"} 1.0',
        'halfmoon_requests_total{outcome="ok"} 2.0',
        "halfmoon_running 0.0",
    ]


def test_histograms_use_the_buckets_given() -> None:
    metrics = Metrics("router")
    histogram = metrics.histogram("halfmoon_wait_seconds", "Waits.", [0.1, 1.0])
    histogram.record(0.05)
    histogram.record(0.5)
    histogram.record(5)
    assert lines(metrics) == [
        'halfmoon_wait_seconds_bucket{le="0.1"} 1.0',
        'halfmoon_wait_seconds_bucket{le="1.0"} 2.0',
        'halfmoon_wait_seconds_bucket{le="+Inf"} 3.0',
        "halfmoon_wait_seconds_count 3.0",
        "halfmoon_wait_seconds_sum 5.55",
    ]


def test_a_series_is_looked_up_once_and_counts_many_values_at_once() -> None:
    metrics = Metrics("router")
    histogram = metrics.histogram("halfmoon_wait_seconds", "Waits.", [0.1, 1.0])
    first, second = histogram.series(route="a"), histogram.series(route="b")
    first.record(0.05, 3)
    second.record(1.0)
    histogram.record(2.0, route="a")
    assert histogram.series(route="a") is first
    assert lines(metrics) == [
        'halfmoon_wait_seconds_bucket{le="0.1",route="a"} 3.0',
        'halfmoon_wait_seconds_bucket{le="1.0",route="a"} 3.0',
        'halfmoon_wait_seconds_bucket{le="+Inf",route="a"} 4.0',
        'halfmoon_wait_seconds_count{route="a"} 4.0',
        'halfmoon_wait_seconds_sum{route="a"} 2.15',
        'halfmoon_wait_seconds_bucket{le="0.1",route="b"} 0.0',
        'halfmoon_wait_seconds_bucket{le="1.0",route="b"} 1.0',
        'halfmoon_wait_seconds_bucket{le="+Inf",route="b"} 1.0',
        'halfmoon_wait_seconds_count{route="b"} 1.0',
        'halfmoon_wait_seconds_sum{route="b"} 1.0',
    ]


def test_values_recorded_by_many_threads_are_all_counted() -> None:
    metrics = Metrics("router")
    series = metrics.histogram("halfmoon_wait_seconds", "Waits.").series()

    def record() -> None:
        for _ in range(2000):
            series.record(1.0)

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "halfmoon_wait_seconds_count 8000.0" in lines(metrics)
    assert "halfmoon_wait_seconds_sum 8000.0" in lines(metrics)


def test_vllm_names_wait_for_the_model_and_show_what_is_known() -> None:
    metrics, model = Metrics("decode"), ""
    metrics.show_vllm_names(lambda: model)
    metrics.gauge("halfmoon_worker_pages_used", "Used.", lambda: 3)
    metrics.gauge("halfmoon_worker_pages_total", "All.", lambda: 4)
    assert "vllm:" not in metrics.render().decode()
    model = "tiny"
    assert [line for line in lines(metrics) if line.startswith("vllm:")] == [
        'vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.75',
        'vllm:gpu_cache_usage_perc{engine="0",model_name="tiny"} 0.75',
    ]


def test_gauges_are_asked_when_read() -> None:
    metrics = Metrics("router")
    value = 1.0
    metrics.gauge("halfmoon_pages", "Pages.", lambda: value)
    metrics.gauge("halfmoon_workers", "Workers.", lambda: [(2, {"role": "prefill"}), (0, {"role": "decode"})])
    assert "halfmoon_pages 1.0" in lines(metrics)
    value = 7.0
    assert sorted(lines(metrics)) == [
        "halfmoon_pages 7.0",
        'halfmoon_workers{role="decode"} 0.0',
        'halfmoon_workers{role="prefill"} 2.0',
    ]


def test_a_name_is_used_once_and_begins_with_halfmoon() -> None:
    metrics = Metrics("router")
    metrics.counter("halfmoon_things", "Things.")
    with pytest.raises(InternalError, match="halfmoon_things"):
        metrics.up_down("halfmoon_things", "Things.")
    with pytest.raises(InternalError, match="things"):
        metrics.counter("things", "Things.")


def test_recording_is_cheap() -> None:
    metrics = Metrics("router")
    counter = metrics.counter("halfmoon_things", "Things.")
    histogram = metrics.histogram("halfmoon_wait_seconds", "Waits.")
    begin = time.process_time()
    for _ in range(2000):
        counter.add(1, outcome="ok")
        histogram.record(0.1)
    assert (time.process_time() - begin) / 4000 < 100e-6
    series = histogram.series()
    begin = time.process_time()
    for _ in range(2000):
        series.record(0.1)
    assert (time.process_time() - begin) / 2000 < 10e-6


def test_metrics_are_served_until_closed() -> None:
    metrics = Metrics("router")
    metrics.counter("halfmoon_things", "Things.").add(2)
    server = serve_metrics(metrics)
    url = f"http://127.0.0.1:{server.port}"
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        assert b"halfmoon_things_total 2.0" in response.read()
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        urllib.request.urlopen(f"{url}/other", timeout=5)
    caught.value.close()
    server.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{url}/metrics", timeout=5)


def test_a_port_in_use_is_a_config_error_that_names_it() -> None:
    metrics = Metrics("router")
    server = serve_metrics(metrics)
    with pytest.raises(ConfigError, match=str(server.port)):
        serve_metrics(metrics, "127.0.0.1", server.port)
    server.close()
