"""One log line per cause every few seconds; no cause, and no end of one, is lost."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.librdkafka.log_lines import LogLines

ERROR, WARNING, NOTICE, DEBUG = 3, 4, 5, 7
LOST = "FAIL: [thrd:b:9092/1]: b:9092/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"


@pytest.fixture
def lines(clock, caplog):
    caplog.set_level(logging.DEBUG, "spark_kafka_sink.librdkafka")
    return LogLines(clock=clock)


def test_one_line_of_a_cause_is_logged_and_the_others_are_counted(lines, clock, caplog):
    for number in range(21):
        lines.write(ERROR, f"{LOST} (after {number}ms in state CONNECT)")
        clock.now += 0.1
    clock.now += 5
    lines.write_due()
    assert caplog.messages == [
        f"{LOST} (after 0ms in state CONNECT)",
        f"{LOST} (after 20ms in state CONNECT) (repeated 20 times)",
    ]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_a_cause_that_lasts_is_logged_once_in_five_seconds(lines, clock, caplog):
    for _ in range(40):
        lines.write(ERROR, LOST)
        clock.now += 0.5
    lines.close()
    assert caplog.messages == [
        LOST,
        f"{LOST} (repeated 9 times)",
        *3 * [f"{LOST} (repeated 10 times)"],
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (f"{LOST} (after 0ms in state CONNECT)", f"{LOST} (after 0ms in state UP)"),
        (LOST, LOST.replace("b:9092/1", "b:9092/2")),
        (LOST, LOST.replace("10.0.0.1", "10.0.0.2")),
        (LOST, LOST.replace("refused", "reset by peer")),
        ("FAIL: topic t [1] failed", "FAIL: topic t [2] failed"),
    ],
)
def test_the_first_line_of_another_cause_is_logged_at_once(lines, caplog, first, second):
    for line in (first, second, first, second):
        lines.write(ERROR, line)
    assert caplog.messages == [first, second]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("(after 1ms in state UP)", "(after 2ms in state UP, 7 identical error(s) suppressed)"),
        ("in flight (after 12001ms, timeout #0)", "in flight (after 12002ms, timeout #4)"),
        (
            "1 in-flight, 0 retry-queued, 0 out-queue, 0 partially-sent requests",
            "5 in-flight, 2 retry-queued, 3 out-queue, 1 partially-sent requests",
        ),
        ("1 request(s) timed out (average rtt 0.5ms)", "2 request(s) timed out (average rtt 7ms)"),
    ],
)
def test_times_and_counts_make_no_other_cause(lines, caplog, first, second):
    lines.write(WARNING, first)
    lines.write(WARNING, second)
    assert caplog.messages == [first]
    lines.close()
    assert caplog.messages == [first, f"{second} (repeated once)"]


def test_a_cause_that_comes_back_later_is_logged_at_once(lines, clock, caplog):
    for _ in range(2):
        lines.write(ERROR, LOST)
        clock.now += 5
        lines.write_due()
    assert caplog.messages == [LOST, LOST]


def test_no_line_of_debugging_is_left_out(lines, caplog):
    for _ in range(3):
        lines.write(DEBUG, "BROKER: waking up")
    assert caplog.messages == 3 * ["BROKER: waking up"]


def test_causes_without_end_are_forgotten_but_not_their_counts(lines, caplog):
    for number in range(1000):
        lines.write(NOTICE, f"OIDC: trace {number}")
        lines.write(NOTICE, f"OIDC: trace {number}")
    lines.close()
    assert len(caplog.messages) == 2000
    assert len(lines._causes) == 0
