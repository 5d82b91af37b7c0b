"""The driver's check: brokers that answer, that do not, and that come back."""

from __future__ import annotations

import logging
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from socketserver import StreamRequestHandler, ThreadingTCPServer
from types import SimpleNamespace

import pytest
from black_hole import black_hole
from kafka_proxy import API_VERSIONS, METADATA, KafkaProxy
from mock_cluster import ADD_OFFSETS_TO_TXN, OFFSET_FETCH

from spark_kafka_sink.driver import exactly_once_check, inquirer, preflight
from spark_kafka_sink.errors import BrokerUnavailable, InvalidOption, TopicUnavailable
from spark_kafka_sink.librdkafka.error_codes import ErrorCode

SASL_HANDSHAKE = 17
NOBODY = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def forget(new_process):
    """Every test is a process of its own."""
    exactly_once_check.check.cache_clear()
    yield
    exactly_once_check.check.cache_clear()


# --- topics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_block_ms", ["0", "60000"])
def test_an_existing_topic_passes_however_long_a_send_may_wait(options, max_block_ms):
    preflight.check(options(kafka_max_block_ms=max_block_ms))


def test_a_forbidden_topic_fails(options, cluster):
    cluster.set_topic_error("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TopicUnavailable, match="topic t"):
        preflight.check(options())


def test_a_missing_topic_is_left_to_the_tasks_if_brokers_may_create_it(options, cluster):
    """The mock broker does not support DescribeConfigs."""
    cluster.set_topic_error("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    preflight.check(options())


def test_a_slow_broker_does_not_delay_the_micro_batch_once_it_is_connected(
    options, cluster, monkeypatch
):
    monkeypatch.setattr(inquirer, "UNREACHABLE_SECONDS", 60.0)
    cluster.set_round_trip(0, 3_600_000)  # the controller, which gets the topic request
    started = time.monotonic()
    preflight.check(options())
    assert time.monotonic() - started < 20


# --- exactly-once ---------------------------------------------------------------------------------


@pytest.fixture
def exactly_once(options):
    return lambda **more: options(
        delivery_guarantee="exactly-once",
        exactly_once_partitions="1",
        kafka_enable_idempotence="true",
        **more,
    )


@pytest.mark.parametrize("runs", ["true", "false"])
def test_brokers_that_do_not_hold_back_transactional_offsets_fail(exactly_once, cluster, runs):
    """As before Kafka 2.5."""
    cluster.set_newest_version(OFFSET_FETCH, 5)
    with pytest.raises(InvalidOption, match=r"Kafka 2\.5 or later .*OffsetFetch .*version 5\. Up"):
        preflight.check(exactly_once(preflight=runs))


def test_brokers_that_hold_them_back_pass(exactly_once, cluster):
    cluster.set_newest_version(OFFSET_FETCH, 7)
    preflight.check(exactly_once())


def test_brokers_without_transactions_fail(exactly_once, cluster):
    cluster.set_newest_version(OFFSET_FETCH, 7)
    cluster.set_newest_version(ADD_OFFSETS_TO_TXN, -1)
    with pytest.raises(InvalidOption, match=r"these brokers have no AddOffsetsToTxn\. Upgrade"):
        preflight.check(exactly_once())


def test_at_least_once_needs_no_version(options, cluster):
    cluster.set_newest_version(OFFSET_FETCH, -1)
    preflight.check(options())


def test_the_version_is_asked_for_once_per_process(exactly_once, cluster):
    cluster.set_newest_version(OFFSET_FETCH, 7)
    with KafkaProxy() as proxy:
        proxy.kafka = cluster
        once = exactly_once(kafka_bootstrap_servers=f"127.0.0.1:{proxy.port}")
        preflight.check(once)
        asked = proxy.requests.total()
        preflight.check(once)
        assert proxy.requests.total() == asked


def test_brokers_that_did_not_answer_are_asked_again(exactly_once, cluster, monkeypatch):
    monkeypatch.setattr(exactly_once_check, "CONFIGURATION_SECONDS", 0.5)
    cluster.set_newest_version(OFFSET_FETCH, 5)
    with KafkaProxy() as proxy:
        once = exactly_once(kafka_bootstrap_servers=f"127.0.0.1:{proxy.port}", preflight="false")
        preflight.check(once)
        proxy.kafka = cluster
        monkeypatch.undo()
        with pytest.raises(InvalidOption, match=r"Kafka 2\.5 or later"):
            preflight.check(once)


@pytest.mark.parametrize(("debug", "is_logged"), [({}, False), ({"kafka_debug": "msg"}, True)])
def test_log_lines_with_the_versions_are_written_only_if_the_user_debugs(
    exactly_once, cluster, caplog, debug, is_logged
):
    caplog.set_level(logging.DEBUG, "spark_kafka_sink.librdkafka")
    cluster.set_newest_version(OFFSET_FETCH, 7)
    preflight.check(exactly_once(preflight="false", **debug))
    assert bool(caplog.messages) == is_logged


# --- brokers that cannot be reached ---------------------------------------------------------------


def test_a_refused_port_fails_the_first_micro_batch_within_ten_seconds(options):
    started = time.monotonic()
    with pytest.raises(
        BrokerUnavailable, match=rf"at {NOBODY} within [0-9.]+ s: .*refused.*Check that"
    ):
        preflight.check(options(kafka_bootstrap_servers=NOBODY))
    assert inquirer.UNREACHABLE_SECONDS <= time.monotonic() - started < 10


def test_a_broker_that_hangs_up_counts_as_unreachable(options, cluster, monkeypatch):
    """Like a listener that requires a login when the client sends none."""
    # However busy the machine is, it is noticed earlier than this.
    monkeypatch.setattr(inquirer, "_ANSWER_SECONDS", 10.0)
    with KafkaProxy() as proxy:
        proxy.kafka, proxy.hangs_up_on = cluster, METADATA
        with pytest.raises(BrokerUnavailable, match=r"kafka\.security\.protocol"):
            preflight.check(options(kafka_bootstrap_servers=f"127.0.0.1:{proxy.port}"))
        assert any(key == METADATA for _, key in proxy.requests)


class StoppingBroker(StreamRequestHandler):
    """Answers the first request, ApiVersions, and hangs up at the next one, the SASL handshake."""

    def handle(self):
        size, _, _, correlation = struct.unpack(">ihhi", self.rfile.read(12))
        self.rfile.read(size - 8)
        keys = (METADATA, SASL_HANDSHAKE, API_VERSIONS)
        versions = b"".join(struct.pack(">hhhb", key, 0, 3, 0) for key in keys)
        answer = struct.pack(">ihb", correlation, 0, len(keys) + 1) + versions + bytes(5)
        self.wfile.write(struct.pack(">i", len(answer)) + answer)
        self.rfile.read(4)


class WebServer(StreamRequestHandler):
    """Answers anything, and keeps the connection."""

    def handle(self):
        self.rfile.read(4)
        self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.rfile.read()


@contextmanager
def serving(handler):
    with ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_broker_that_stops_during_the_login_has_not_rejected_it(options, monkeypatch):
    monkeypatch.setattr(inquirer, "UNREACHABLE_SECONDS", 0.5)
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    login |= {"kafka.sasl.username": "u", "kafka.sasl.password": "hunter2"}
    with (
        serving(StoppingBroker) as servers,
        pytest.raises(BrokerUnavailable, match="mechanism handshake failed"),
    ):
        preflight.check(options(kafka_bootstrap_servers=servers, **login))


def test_a_port_that_speaks_http_is_named(options):
    with (
        serving(WebServer) as servers,
        pytest.raises(BrokerUnavailable, match=r"Correct the port in kafka\.bootstrap\.servers"),
    ):
        preflight.check(options(kafka_bootstrap_servers=servers))


def test_a_first_micro_batch_waits_if_one_of_two_brokers_may_answer(options, resolver, monkeypatch):
    monkeypatch.setattr(inquirer, "UNREACHABLE_SECONDS", 0.5)
    resolver.unknown.add("nowhere.test")
    with black_hole() as silent:
        servers = f"nowhere.test:9092,{silent}"
        with pytest.raises(BrokerUnavailable, match=r"within 2 s \(kafka\.max\.block\.ms\)"):
            preflight.check(options(kafka_bootstrap_servers=servers, kafka_max_block_ms="2000"))


def test_one_unresolvable_name_of_two_does_no_harm(options, cluster, resolver):
    resolver.unknown.add("nowhere.test")
    preflight.check(
        options(kafka_bootstrap_servers=f"nowhere.test:9092,{cluster.bootstrap_servers}")
    )


def test_white_space_and_protocols_among_the_servers_do_no_harm(options, cluster):
    servers = cluster.bootstrap_servers.replace(",", "\n,\r\n\tSASL_SSL://")
    preflight.check(options(kafka_bootstrap_servers=f"\n kafka://{servers},\n"))


@contextmanager
def refusing(proxy, resolver):
    with proxy.refusing():
        yield


@contextmanager
def not_resolving(proxy, resolver):
    with resolver.not_resolving("broker.test"):
        yield


@pytest.mark.parametrize("outage", [refusing, not_resolving])
def test_a_later_micro_batch_survives_an_outage(
    options, cluster, resolver, new_process, monkeypatch, tmp_path, outage
):
    monkeypatch.setattr(inquirer, "UNREACHABLE_SECONDS", 0.2)
    with KafkaProxy() as proxy, ThreadPoolExecutor() as pool:
        proxy.kafka = SimpleNamespace(bootstrap_servers=cluster.bootstrap_servers.split(",")[0])
        sink_options = options(kafka_bootstrap_servers=f"broker.test:{proxy.port}")
        preflight.check(sink_options, tmp_path)
        new_process()
        with outage(proxy, resolver):
            checking = pool.submit(preflight.check, sink_options, tmp_path)
            time.sleep(1)
            assert not checking.done()
        checking.result(30)


def test_brokers_that_stay_down_fail_a_later_micro_batch_after_the_metadata_budget(
    options, cluster, new_process, monkeypatch, tmp_path
):
    monkeypatch.setattr(inquirer, "UNREACHABLE_SECONDS", 0.2)
    sink_options = options(kafka_max_block_ms="4000")
    preflight.check(sink_options, tmp_path)
    new_process()
    cluster.set_down(0)
    cluster.set_down(1)
    with pytest.raises(BrokerUnavailable, match=r"within 4 s \(kafka\.max\.block\.ms\)"):
        preflight.check(sink_options, tmp_path)
