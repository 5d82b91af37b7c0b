"""No wait is as long as one that it is part of; every time of the sink is in one of the tables."""

from __future__ import annotations

import ast
import importlib
from operator import attrgetter
from pathlib import Path

import pytest
from job_files import checked

import spark_kafka_sink
from spark_kafka_sink.config.added_settings import transactional
from spark_kafka_sink.config.client_settings import DEFAULTS
from spark_kafka_sink.config.option_table import OPTIONS
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.librdkafka.setting_specs import producer_setting_specs
from spark_kafka_sink.tools.doctor.waits import NESTED, seconds, unfitting

PACKAGE = Path(spark_kafka_sink.__file__).parent
CONF = sorted((Path(__file__).parents[2] / "conf").glob("*.yaml"))

SINK = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
EXACTLY_ONCE = {**SINK, "delivery.guarantee": "exactly-once", "transactional.id.prefix": "p"}

# The same for times that are no options: part, how often, whole. Constants are written as
# module:name.
CONSTANTS = [
    # a task
    ("config.producer_options:MISSING_TOPIC_SECONDS", 1, "close.timeout.ms"),
    ("config.producer_options:MISSING_TOPIC_SECONDS", 1, "kafka.max.block.ms"),
    ("clients.oauth_token:_CALL_SECONDS", 2, "close.timeout.ms"),
    ("clients.kerberos:_SECONDS", 2, "close.timeout.ms"),
    ("clients.session:_FETCH_SECONDS", 1, "close.timeout.ms"),
    ("producer.metadata_plan:_FIRST_BACKOFF_SECONDS", 1, "kafka.max.block.ms"),
    (
        "producer.metadata_plan:_MAX_BACKOFF_SECONDS",
        2,
        "config.producer_options:MISSING_TOPIC_SECONDS",
    ),
    ("producer.producer:_ACCESS_SECONDS", 1, "close.timeout.ms"),
    # The second request has twice the time of the first.
    ("producer.topic_metadata:_FIRST_REQUEST_SECONDS", 3, "close.timeout.ms"),
    ("producer.topic_metadata:_MAX_REQUEST_SECONDS", 1, "close.timeout.ms"),
    # a producer's end
    ("producer.producer:_FLUSH_SECONDS", 1, "producer.producer:_REPORT_SECONDS"),
    ("producer.producer:_POLL_SECONDS", 1, "producer.producer:_REPORT_SECONDS"),
    ("producer.producer:_REPORT_SECONDS", 1, "producer.producer:_COLLECT_SECONDS"),
    ("producer.producer:_COLLECT_SECONDS", 1, "producer.producer:_ABORT_SECONDS"),
    ("producer.lifecycle:_LOOK_SECONDS", 1, "producer.producer:_ABORT_SECONDS"),
    ("clients.idle_clients:_POLL_SECONDS", 1, "producer.cache.timeout"),
    # exactly-once
    (
        "transactions.offset_calls:_FIRST_REQUEST_SECONDS",
        1,
        "transactions.offset_calls:_RECONNECT_SECONDS",
    ),
    (
        "transactions.offset_calls:_RECONNECT_SECONDS",
        1,
        "transactions.offset_calls:_REQUEST_SECONDS",
    ),
    ("transactions.offset_calls:_REQUEST_SECONDS", 3, "close.timeout.ms"),
    ("kafka.socket.connection.setup.timeout.ms", 3, "transactions.offset_calls:_CONNECTED_SECONDS"),
    ("transactions.offset_calls:_CONNECTED_SECONDS", 1, "close.timeout.ms"),
    ("transactions.offset_calls:_PAUSE_SECONDS", 1, "transactions.offset_calls:_REQUEST_SECONDS"),
    ("transactions.offset_calls:_FREE_SECONDS", 1, "transactions.offset_calls:_ACCESS_SECONDS"),
    ("transactions.offset_calls:_ACCESS_SECONDS", 2, "close.timeout.ms"),
    ("transactions.claim:_END_SECONDS", 1, "close.timeout.ms"),
    (
        "transactions.claim:TIMING.announcement_seconds",
        1,
        "transactions.claim:TIMING.stalled_after_seconds",
    ),
    (
        "transactions.claim:TIMING.open_claim_seconds",
        1,
        "transactions.claim:TIMING.stalled_after_seconds",
    ),
    ("transactions.claim:TIMING.stalled_after_seconds", 2, "kafka.max.block.ms"),
    ("transactions.transaction:_CALL_SECONDS", 1, "transactions.transaction:_ABORT_SECONDS"),
    ("transactions.transaction:_ABORT_SECONDS", 1, "kafka.transaction.timeout.ms"),
    # the driver
    ("spark.from_driver:_LOOK_SECONDS", 1, "spark.from_driver:_ABORT_SECONDS"),
    ("transactions.transaction:_ABORT_SECONDS", 1, "spark.from_driver:_ABORT_SECONDS"),
    ("spark.from_driver:_ABORT_SECONDS", 1, "close.timeout.ms"),
    ("driver.inquirer:_POLL_SECONDS", 1, "driver.inquirer:_ANSWER_SECONDS"),
    ("driver.inquirer:_ANSWER_SECONDS", 1, "driver.inquirer:UNREACHABLE_SECONDS"),
    ("driver.inquirer:UNREACHABLE_SECONDS", 1, "kafka.max.block.ms"),
    ("driver.inquirer:CONFIGURATION_SECONDS", 1, "kafka.max.block.ms"),
    ("clients.sockets:_HANDSHAKE_SECONDS", 1, "kafka.max.block.ms"),
    ("spark.warm_up:_TOPIC_SECONDS", 1, "kafka.max.block.ms"),
]

# Times that neither contain another wait nor are part of one.
ALONE = {
    "driver.options:_CLOSE_SECONDS": "frees a client that never connects",
    "driver.trust_store:_KEYTOOL_SECONDS": "Java on the driver, before anything else",
    "clients.kerberos:_LONGEST_SECONDS": "a pause between two renewals",
    "clients.kerberos:_USUAL_SECONDS": "of a ticket",
    "clients.oauth_token:_MAX_SECONDS": "no wait, but a date",
    "clients.oauth_token:_REPLACEMENT_SECONDS": "a pause between two calls",
    "driver.inquirer:_FREE_SECONDS": "frees a client, after everything else",
    "librdkafka.log_lines:_INTERVAL_SECONDS": "a pause between two log lines",
    "producer.topic_metadata:RECENT_SECONDS": "an age",
    "producer.topic_metadata:_SCAN_SECONDS": "a pause between two searches",
    "report.folder:_SECONDS": "a file's write, after everything else",
    "report.metrics:_SECONDS": "a factor",
    "report.metrics_server:_CLOSE_SECONDS": "the end of a server",
    "schemas.registry_client:_TOKEN_SECONDS": "of a token",
    "spark.from_driver:_LOST_RESULTS_SECONDS": "a pause between two looks at Spark",
    "spark.micro_batch:_IDLE_SECONDS": "names of Spark's settings",
    "spark.micro_batch:_IDLE_TIMEOUT_SECONDS": "the name of a setting of Spark's",
    "spark.warm_up:_MIN_WAIT_SECONDS": "the shortest wait that Spark accepts",
    "transactions.claim:_PAUSE_SECONDS": "pauses between two looks",
    "kafka.api.version.request.timeout.ms": "at least the set-up of a connection, unless it is set",
    "kafka.message.timeout.ms": "another name of kafka.delivery.timeout.ms",
    "kafka.connections.max.idle.ms": "how long a connection without requests is kept",
    "kafka.linger.ms": "delivery.timeout.ms is checked against it; a flush ends it",
    "kafka.max.block.metadata.ms": "stands for kafka.max.block.ms",
    "kafka.metadata.evict.ms": "an age",
    "kafka.metadata.max.age.ms": "an age",
    "kafka.socket.timeout.ms": "in the table as kafka.request.timeout.ms",
    "schema.registry.request.timeout.ms": "divided among the URLs of the registry",
}


def exactly_once(**more):
    return parse({**EXACTLY_ONCE, **more})


def time_of(name, options):
    module, _, path = name.rpartition(":")
    if not module:
        return seconds(name, options)
    return attrgetter(path)(importlib.import_module(f"spark_kafka_sink.{module}"))


def times_in_modules():
    """The names of all constants that say that they are times, outside tools."""
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if module.startswith("tools."):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else []
            targets += node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                if isinstance(target, ast.Name) and target.id.endswith("_SECONDS"):
                    yield f"{module}:{target.id}"


def times_in_options():
    """Also those that only librdkafka has."""
    names = {option.name for option in OPTIONS} | {f"kafka.{name}" for name in DEFAULTS}
    times = {name for name in names if name.endswith((".ms", ".ttl", ".timeout"))}
    return times | {f"kafka.{name}" for name in producer_setting_specs() if "timeout" in name}


@pytest.mark.parametrize("options", [SINK, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])
def test_by_default_every_wait_fits_into_those_that_it_is_part_of(options):
    parsed = parse(options)
    assert list(unfitting(parsed)) == []
    broken = [
        (part, whole)
        for part, times, whole in CONSTANTS
        if (limit := time_of(whole, parsed)) is not None
        and not times * time_of(part, parsed) < limit
    ]
    assert broken == []


def test_the_tables_have_every_time_of_the_package_and_no_other():
    known = {name for row in NESTED for name in (row.part, row.whole)}
    known |= {name for part, _, whole in CONSTANTS for name in (part, whole)}
    times = {*times_in_modules(), *times_in_options()}
    assert sorted(times - known - ALONE.keys()) == []
    assert sorted(ALONE.keys() - times) == []
    assert sorted(ALONE.keys() & known) == []


def test_every_row_of_the_options_applies_with_the_defaults():
    parsed = exactly_once()
    for row in NESTED:
        assert seconds(row.part, parsed)
        assert seconds(row.whole, parsed)


@pytest.mark.parametrize("path", CONF, ids=lambda path: path.stem)
def test_the_times_of_a_configuration_fit(path, tmp_path):
    options = checked(path.read_text(encoding="utf-8"), path.name, tmp_path).sink_options
    assert list(unfitting(options)) == []


@pytest.mark.parametrize(
    ("settings", "part", "whole"),
    [
        ({"kafka.request.timeout.ms": "60000"}, "kafka.request.timeout.ms", "close.timeout.ms"),
        ({"kafka.socket.timeout.ms": "15000"}, "kafka.request.timeout.ms", "close.timeout.ms"),
        ({"close.timeout.ms": "22000"}, "kafka.request.timeout.ms", "close.timeout.ms"),
        ({"kafka.max.block.ms": "600000"}, "kafka.max.block.ms", "kafka.transaction.timeout.ms"),
        (
            {"kafka.socket.connection.setup.timeout.ms": "10000"},
            "kafka.socket.connection.setup.timeout.ms",
            "kafka.broker.address.ttl",
        ),
    ],
)
def test_a_time_that_does_not_fit_is_named_with_the_other(settings, part, whole):
    sentences = list(unfitting(exactly_once(**settings)))
    assert any(f"{part} (" in sentence and f"{whole} (" in sentence for sentence in sentences)


@pytest.mark.parametrize("settings", [{"close.timeout.ms": "0"}, {"kafka.max.block.ms": "0"}])
def test_a_time_of_zero_is_no_wait(settings):
    (name,) = settings
    assert not any(name in sentence for sentence in unfitting(exactly_once(**settings)))


@pytest.mark.parametrize("timeout_ms", [1000, 10_999, 600_000, 2**31 - 1])
@pytest.mark.parametrize("request_ms", [10, 11_000, 300_000])
def test_whatever_is_set_no_wait_of_a_transaction_is_longer_than_it(timeout_ms, request_ms):
    client = parse({**SINK, "kafka.request.timeout.ms": str(request_ms)}).producer.client
    settings = transactional(client, "p", timeout_ms)
    for name in ("delivery.timeout.ms", "socket.timeout.ms"):
        assert int(settings[name]) <= int(settings["transaction.timeout.ms"])


@pytest.mark.parametrize("request_ms", [10, 60_000, 300_000])
def test_whatever_is_set_a_record_outlives_its_first_request(request_ms):
    client = parse({**SINK, "kafka.request.timeout.ms": str(request_ms)}).producer.client
    assert int(client["socket.timeout.ms"]) <= int(client["delivery.timeout.ms"])
