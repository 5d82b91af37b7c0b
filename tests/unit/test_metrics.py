"""The metrics: what a scrape finds, the page, the dashboard and the alerts."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from datetime import datetime, timezone

import pytest
import yaml
from listener_events import (
    QUERY_ID,
    MadeUpReport,
    awaits_data,
    failed_report,
    idle,
    progressed,
    started,
    terminated,
)
from markdown_pages import ROOT, anchors
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from promql import labels_of, metrics_in, needed_metrics

from spark_kafka_sink import KafkaSinkError, KafkaSinkListener
from spark_kafka_sink.report import metrics_server
from spark_kafka_sink.report.batch_figures import FIGURES
from spark_kafka_sink.report.metrics import METRICS, PROGRESS_METRICS, QUERY_METRICS, REPORT_METRICS
from spark_kafka_sink.report.metrics_server import MetricsCollector

SECONDS = 30.0
LABELS = {"query": "orders", "query_id": QUERY_ID}


@pytest.fixture
def listener_options():
    return {}


@pytest.fixture
def listener(listener_options):
    listener = KafkaSinkListener(**listener_options)
    listener.onQueryStarted(started())
    return listener


def text_over_http(listener):
    with (
        listener.serve_metrics(0) as server,
        urllib.request.urlopen(server.url, timeout=SECONDS) as answer,
    ):
        return answer.read().decode()


def text_at_once(listener):
    """The same without a server, which takes half a second to end."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector(listener._values))
    return generate_latest(registry).decode()


def scrape(listener, text_of=text_at_once):
    """Samples by name and labels, without those of the query; of one query."""
    values = {}
    text = text_of(listener)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert {name: labels.pop(name) for name in LABELS} == LABELS
            values[sample.name, tuple(sorted(labels.items()))] = sample.value
    return values


def values(scraped, name):
    return {labels: value for (metric, labels), value in scraped.items() if metric == name}


# --- what a scrape finds --------------------------------------------------------------------------


def test_a_scrape_finds_what_was_reported(listener):
    listener.on_report(MadeUpReport())
    listener.onQueryProgress(progressed(behind=17))
    rejected = {"a": {"MSG_SIZE_TOO_LARGE": 2}, "": {"NULL_TOPIC": 1}}
    listener.on_report(
        failed_report(batch_id=1, dead_letters_by_topic=rejected, buffer_peak_bytes=8_000)
    )
    listener.onQueryTerminated(terminated("DeliveryFailed: 2 records"))
    delivered_at = datetime(2026, 11, 22, 8, 0, 0, 125_000, timezone.utc).timestamp()
    a, b = (("topic", "a"),), (("topic", "b"),)
    assert scrape(listener, text_over_http) == {
        ("kafka_producer_record_send_total", a): 8,
        ("kafka_producer_record_send_total", b): 6,
        ("kafka_producer_byte_total", a): 100,
        ("kafka_producer_byte_total", b): 80,
        ("kafka_producer_record_error_total", a): 2,
        ("kafka_producer_record_error_total", b): 0,
        ("kafka_producer_metadata_wait_time_ns_total", ()): 40e6,
        ("kafka_producer_bufferpool_wait_time_ns_total", ()): 60e6,
        ("kafka_producer_flush_time_ns_total", ()): 80e6,
        ("kafka_producer_buffer_total_bytes", ()): 10_000,
        ("spark_kafka_sink_micro_batches_total", (("outcome", "delivered"),)): 1,
        ("spark_kafka_sink_micro_batches_total", (("outcome", "failed"),)): 1,
        ("spark_kafka_sink_last_delivery_timestamp_seconds", ()): delivered_at,
        ("spark_kafka_sink_record_errors_total", (("error", "MSG_TIMED_OUT"),)): 2,
        (
            "spark_kafka_sink_dead_letters_total",
            (("error", "MSG_SIZE_TOO_LARGE"), ("topic", "a")),
        ): 2,
        ("spark_kafka_sink_dead_letters_total", (("error", "NULL_TOPIC"), ("topic", ""))): 1,
        ("spark_kafka_sink_unsent_records_total", ()): 1,
        ("spark_kafka_sink_possibly_persisted_records_total", ()): 1,
        ("spark_kafka_sink_retried_requests_total", ()): 2,
        ("spark_kafka_sink_tasks_total", ()): 4,
        ("spark_kafka_sink_failed_tasks_total", ()): 1,
        ("spark_kafka_sink_task_time_seconds_total", ()): 2,
        ("spark_kafka_sink_rows_wait_time_seconds_total", ()): 0.2,
        ("spark_kafka_sink_longest_task_seconds", ()): 0.6,
        ("spark_kafka_sink_first_acknowledgement_seconds", ()): 0.025,
        ("spark_kafka_sink_round_trip_seconds", (("quantile", "0.5"),)): 0.0015,
        ("spark_kafka_sink_round_trip_seconds", (("quantile", "0.99"),)): 0.004,
        ("spark_kafka_sink_buffer_peak_bytes", ()): 8_000,
        ("spark_kafka_sink_metadata_requests_total", ()): 4,
        ("spark_kafka_sink_producers_created_total", ()): 2,
        ("spark_kafka_sink_producers_reused_total", ()): 2,
        ("spark_streaming_micro_batches_total", ()): 1,
        (
            "spark_streaming_last_micro_batch_timestamp_seconds",
            (),
        ): datetime(2026, 11, 22, 8, 0, 1, tzinfo=timezone.utc).timestamp(),
        ("spark_streaming_input_rows_total", ()): 8,
        ("spark_streaming_duration_seconds_total", (("phase", "addBatch"),)): 1.5,
        ("spark_streaming_duration_seconds_total", (("phase", "triggerExecution"),)): 2,
        (
            "spark_streaming_max_offsets_behind_latest",
            (("source", "KafkaV2[Subscribe[in]]"),),
        ): 17,
        ("spark_streaming_query_active", ()): 0,
        ("spark_streaming_query_failures_total", ()): 1,
    }


def test_series_are_bounded_whatever_topics_the_data_name(listener):
    for batch_id in range(5):
        rejected = {f"missing-{batch_id}-{n}": {"UNKNOWN_TOPIC_OR_PART": 2} for n in range(400)}
        listener.on_report(MadeUpReport(batch_id=batch_id, dead_letters_by_topic=rejected))
    counts = values(scrape(listener), "spark_kafka_sink_dead_letters_total")
    assert len(counts) == 1_001
    assert sum(counts.values()) == 4_000
    others = (("error", "UNKNOWN_TOPIC_OR_PART"), ("topic", "(other topics)"))
    assert counts[others] == 2_000


def test_without_reports_there_are_only_sparks_metrics(listener):
    listener.onQueryProgress(progressed(behind=1))
    names = {name for name, _ in scrape(listener)}
    assert names == {metric.name for metric in PROGRESS_METRICS + QUERY_METRICS}


def test_a_gauge_disappears_when_its_value_is_no_longer_known(listener):
    name = "spark_kafka_sink_round_trip_seconds"
    listener.on_report(MadeUpReport())
    assert len(values(scrape(listener), name)) == 2
    listener.on_report(MadeUpReport(batch_id=1, round_trip_p50_ms=None, round_trip_p99_ms=None))
    assert values(scrape(listener), name) == {}


def test_a_counter_that_was_not_told_stays(listener):
    listener.on_report(MadeUpReport())
    listener.on_report(MadeUpReport(batch_id=1, retried_requests=None))
    assert scrape(listener)["spark_kafka_sink_retried_requests_total", ()] == 1


def test_an_idle_query_tells_only_its_lag(listener):
    listener.onQueryProgress(progressed(behind=17))
    before = scrape(listener)
    listener.onQueryProgress(idle(behind=3))
    after = scrape(listener)
    changed = {name for name, _ in before if values(before, name) != values(after, name)}
    assert changed == {"spark_streaming_max_offsets_behind_latest"}


def test_labels_may_contain_any_characters():
    listener = KafkaSinkListener()
    name = 'a "quoted"\\name\nin two lines'
    listener.onQueryStarted(started(name))
    families = text_string_to_metric_families(text_at_once(listener))
    samples = [sample for family in families for sample in family.samples]
    assert {sample.labels["query"] for sample in samples} == {name}


def test_the_server_listens_on_loopback_until_it_is_closed(listener):
    server = listener.serve_metrics(0)
    port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/metrics", server.url)[1])
    socket.create_connection(("127.0.0.1", port), SECONDS).close()
    with pytest.raises(KafkaSinkError, match=rf"127\.0\.0\.1:{port}: .*choose another port"):
        listener.serve_metrics(port)
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), SECONDS)


@pytest.mark.parametrize("port", [70000, -1])
def test_a_port_that_cannot_exist_is_rejected(listener, port):
    with pytest.raises(KafkaSinkError, match=rf"127\.0\.0\.1:{port}: .*choose another port"):
        listener.serve_metrics(port)


@pytest.mark.parametrize("address", ["10.0.0..7", "no-such-host.invalid", "192.0.2.1"])
def test_an_address_that_is_not_of_this_machine_is_to_be_corrected(address):
    expected = rf"on {re.escape(address)}:0: .*; correct the address$"
    with pytest.raises(KafkaSinkError, match=expected):
        KafkaSinkListener().serve_metrics(0, address)


def test_the_url_of_an_ipv6_address_has_brackets(monkeypatch, listener):
    class Server:
        server_port = 9464

        def set_app(self, application):
            pass

    monkeypatch.setattr(metrics_server, "start_http_server", lambda *_: (Server(), None))
    assert listener.serve_metrics(9464, "::1").url == "http://[::1]:9464/metrics"


# --- health ---------------------------------------------------------------------------------------

FAILURE = (
    "org.apache.spark.SparkException: x\nspark_kafka_sink.errors.DeliveryFailed: 2 records\n at y"
)


@pytest.fixture
def health(listener):
    """Asks for the health: the status, and the lines that it came with."""
    with listener.serve_metrics(0) as server:

        def ask():
            try:
                answer = urllib.request.urlopen(
                    server.url.replace("/metrics", "/health"), timeout=SECONDS
                )
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                return answer.status, answer.read().decode().splitlines()

        yield ask


def test_health_is_503_until_a_query_runs():
    with KafkaSinkListener().serve_metrics(0) as server:
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(server.url.replace("/metrics", "/health"), timeout=SECONDS)
        with raised.value as answer:
            assert (answer.status, answer.read()) == (503, b"no query runs\n")


def test_health_is_200_while_micro_batches_succeed_also_during_the_first(listener, health):
    assert health() == (200, ["ok"])
    listener.onQueryProgress(progressed())
    assert health() == (200, ["ok"])
    listener.onQueryProgress(idle())
    assert health() == (200, ["ok"])


def test_health_is_503_from_a_failure_to_the_next_micro_batch_that_ends(listener, health):
    listener.onQueryProgress(progressed())
    listener.onQueryTerminated(terminated(FAILURE))
    assert health() == (503, ["orders has failed: DeliveryFailed: 2 records"])
    listener.onQueryStarted(started())
    again = "orders has failed and runs again, but has completed no micro-batch since"
    assert health() == (503, [f"{again}: DeliveryFailed: 2 records"])
    listener.onQueryProgress(idle())  # written before the micro-batch that may fail again
    assert health() == (503, [f"{again}: DeliveryFailed: 2 records"])
    listener.onQueryProgress(progressed(1))
    assert health() == (200, ["ok"])


def test_health_is_200_again_when_a_query_that_failed_waits_for_data(listener, health):
    listener.onQueryTerminated(terminated(FAILURE))
    listener.onQueryStarted(started())
    listener.onQueryIdle(awaits_data())
    assert health() == (200, ["ok"])


@pytest.mark.parametrize("is_end_late", [False, True])
def test_a_query_with_another_checkpoint_takes_over_the_failure(listener, health, is_end_late):
    """Spark tells starts at once, but ends later."""
    other = "99999999-2222-3333-4444-555555555555"
    events = [(listener.onQueryTerminated, terminated("a"))]
    events.insert(0 if is_end_late else 1, (listener.onQueryStarted, started(query_id=other)))
    for tell, event in events:
        tell(event)
    again = "orders has failed and runs again, but has completed no micro-batch since"
    assert health() == (503, [f"{again}: a"])
    listener.onQueryProgress(progressed(query_id=other))
    assert health() == (200, ["ok"])


def test_queries_without_a_name_are_different_ones(listener, health):
    ids = [f"{n}9999999-2222-3333-4444-555555555555" for n in (8, 9)]
    listener.onQueryStarted(started(None, ids[0]))
    listener.onQueryTerminated(terminated("a", ids[0]))
    listener.onQueryStarted(started(None, ids[1]))
    listener.onQueryProgress(progressed(name=None, query_id=ids[1]))
    assert health() == (503, [f"{ids[0]} has failed: a"])


def test_health_names_every_query_that_has_failed(listener, health):
    other = "99999999-2222-3333-4444-555555555555"
    listener.onQueryStarted(started("others", other))
    listener.onQueryTerminated(terminated("a"))
    assert health() == (503, ["orders has failed: a"])
    listener.onQueryTerminated(terminated("b", other))
    assert health() == (503, ["orders has failed: a", "others has failed: b"])


@pytest.mark.parametrize("listener_options", [{"expected_queries": ["orders", "others"]}])
def test_health_is_503_until_every_expected_query_has_started(listener, health):
    assert health() == (503, ["others has not started"])
    listener.onQueryTerminated(terminated("a"))
    assert health() == (503, ["orders has failed: a", "others has not started"])
    listener.onQueryStarted(started())
    listener.onQueryProgress(progressed())
    other = "99999999-2222-3333-4444-555555555555"
    listener.onQueryStarted(started("others", other))
    assert health() == (200, ["ok"])
    listener.onQueryTerminated(terminated(None, other))  # it has done its work
    assert health() == (200, ["ok"])


def test_a_query_that_was_stopped_has_not_failed(listener, health):
    listener.onQueryTerminated(terminated())
    assert health() == (503, ["no query runs"])
    listener.onQueryStarted(started())
    assert health() == (200, ["ok"])


# --- the table, and the page ----------------------------------------------------------------------


def test_names_say_kind_and_unit():
    for metric in METRICS:
        assert metric.name.endswith("_total") is (metric.kind == "counter")
        assert re.match(r"(kafka_producer|spark_kafka_sink|spark_streaming)_[a-z_]+$", metric.name)
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_figures_with_the_same_metric_describe_it_in_the_same_way():
    exported = [figure.metric for figure in FIGURES.values() if figure.metric is not None]
    described = {
        tuple(value for name, value in vars(metric).items() if name != "at") for metric in exported
    }
    assert len(described) == len({metric.name for metric in exported}) == len(REPORT_METRICS)
    assert {metric.kind for metric in exported} == {"counter", "gauge"}


def test_a_figure_in_milliseconds_is_exported_in_the_unit_of_the_metrics_name():
    for name, figure in FIGURES.items():
        if figure.metric is not None and name.endswith("_ms"):
            scale = {True: 1e6, False: 1e-3}["_ns_" in figure.metric.name]
            assert figure.metric.scale == scale, name


# --- the dashboard --------------------------------------------------------------------------------

DASHBOARD = json.loads((ROOT / "docs" / "grafana.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]


def plain(expression):
    """Without Grafana's variables."""
    return re.sub(r"\$__rate_interval|\$__range", "5m", expression).replace("$query", ".*")


@pytest.mark.parametrize("target", [pytest.param(target, id=title) for title, target in TARGETS])
def test_a_panel_asks_for_metrics_and_labels_that_exist(target):
    labels = labels_of(plain(target["expr"]))
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels


def test_every_panel_can_be_limited_to_a_query():
    for _, target in TARGETS:
        selectors = re.findall(
            r"[a-z_]+(?:_total|_seconds|_bytes|_active|_latest)\b(.)", target["expr"]
        )
        assert set(selectors) == {"{"}
        assert target["expr"].count('query=~"$query"') == len(selectors)


def test_the_choice_of_queries_is_of_a_metric_that_exists():
    choice = next(
        variable for variable in DASHBOARD["templating"]["list"] if variable["name"] == "query"
    )
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", choice["query"]).groups()
    assert label in labels_of(metric)


def test_panels_have_their_own_place():
    places = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        area = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not area & places, panel["title"]
        places |= area
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_nearly_all_metrics_are_on_the_dashboard():
    shown = set().union(*(metrics_in(plain(target["expr"])) for _, target in TARGETS))
    left_out = {metric.name for metric in METRICS} - shown
    exported = [figure.metric for figure in FIGURES.values() if figure.metric is not None]
    assert left_out == {metric.name for metric in exported if not metric.on_dashboard} | {
        # matters for alerts
        "spark_streaming_last_micro_batch_timestamp_seconds",
        "spark_streaming_query_failures_total",
    }


# --- alerts ---------------------------------------------------------------------------------------

ALERTS = [
    rule
    for group in yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text(encoding="utf-8"))[
        "groups"
    ]
    for rule in group["rules"]
]


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in ALERTS])
def test_an_alert_asks_for_metrics_and_labels_that_exist(rule):
    labels = labels_of(rule["expr"])
    texts = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels
    assert "query" in labels


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in ALERTS])
def test_pages_that_an_alert_names_exist(rule):
    for page in re.findall(r"docs/[\w.]+\.md", rule["annotations"]["description"]):
        assert anchors(ROOT / page)


def test_the_alert_of_no_delivery_needs_only_what_is_there_before_the_first_one(listener):
    (rule,) = (rule for rule in ALERTS if rule["alert"] == "KafkaSinkNoDelivery")
    assert needed_metrics(rule["expr"]) <= {name for name, _ in scrape(listener)}


@pytest.mark.parametrize("mode", ["with reports", "without"])
def test_a_micro_batch_that_spark_ended_silences_the_alert_of_no_delivery(listener, mode):
    (rule,) = (rule for rule in ALERTS if rule["alert"] == "KafkaSinkNoDelivery")
    if mode == "with reports":
        listener.on_report(MadeUpReport())
    listener.onQueryProgress(progressed())
    others = metrics_in(rule["expr"]) - needed_metrics(rule["expr"])
    assert others <= {name for name, _ in scrape(listener)}


def test_the_page_lists_the_alerts():
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(KafkaSink\w+)`", page, re.MULTILINE) == [r["alert"] for r in ALERTS]
