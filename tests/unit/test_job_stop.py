"""When a query is stopped after a signal, and what blocks the next micro-batch."""

from __future__ import annotations

import logging
import os
import signal
import threading

import pytest

from spark_kafka_sink.tools.job.stop import Stop, StopCheck, handle_signals


class FakeQuery:
    """Micro-batch ``running`` runs, or none."""

    def __init__(self, running: int | None) -> None:
        self.running = running
        self.ended = (running or 0) - 1
        self.isActive = True
        self.was_idle = False

    @property
    def status(self):
        return {"isTriggerActive": self.running is not None}

    @property
    def lastProgress(self):  # noqa: N802 - Spark's name
        if self.was_idle:
            return {"batchId": self.ended + 1, "durationMs": {"triggerExecution": 1}}
        return None if self.ended < 0 else {"batchId": self.ended, "durationMs": {"addBatch": 1}}


@pytest.fixture
def stop(clock):
    stop = Stop(60, clock)
    stop.begin()
    return stop


def test_before_the_query_begins_a_signal_interrupts_at_once(clock):
    with pytest.raises(KeyboardInterrupt):
        Stop(60, clock).request()


@pytest.mark.parametrize("was_idle", [False, True])
@pytest.mark.parametrize("batch_id", [0, 5])
def test_the_query_is_stopped_when_its_micro_batch_has_ended(stop, batch_id, was_idle):
    query = FakeQuery(running=batch_id)
    query.was_idle = was_idle
    stop.request()
    assert not stop.is_due(query)
    query.ended, query.running, query.was_idle = batch_id, batch_id + 1, False
    assert stop.is_due(query)
    assert not stop.is_late


def test_between_micro_batches_the_query_is_stopped_at_once(stop):
    stop.request()
    assert stop.is_due(FakeQuery(running=None))


def test_a_long_micro_batch_is_waited_for_until_the_timeout(stop, clock):
    query = FakeQuery(running=3)
    stop.request()
    clock.now += 59
    assert not stop.is_due(query)  # the time counts from here
    clock.now += 59
    assert not stop.is_due(query)
    clock.now += 1
    assert stop.is_due(query)
    assert stop.is_late
    assert not stop.is_immediate


def test_a_second_signal_stops_at_once(stop, clock):
    query = FakeQuery(running=3)
    stop.request()
    assert not stop.is_due(query)
    clock.now += 0.5
    stop.request()
    assert stop.is_due(query)
    assert stop.is_immediate


def test_a_signal_that_reaches_python_and_java_is_one(stop, clock):
    stop.request()
    clock.now += 0.4
    stop.request()
    assert not stop.is_immediate


@pytest.fixture
def handled(stop):
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    filters = list(logging.getLogger().filters)
    handle_signals(stop)
    yield
    logging.getLogger().filters[:] = filters
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_request_the_stop(stop, handled, number):
    os.kill(os.getpid(), number)
    assert stop.requested.wait(10)


def test_py4js_traceback_of_an_interruption_is_not_logged(handled, caplog):
    root = logging.getLogger()  # as py4j does
    root.error("KeyboardInterrupt while sending command.")
    root.error("other news")
    assert [record.message for record in caplog.records] == ["other news"]


# --- before the next micro-batch ------------------------------------------------------------------


def test_micro_batches_begin_until_the_stop_is_requested(stop):
    written = []
    write = StopCheck(stop).guarded(lambda batch, batch_id: written.append((batch, batch_id)))
    write("rows", 7)
    assert written == [("rows", 7)]


def test_the_next_micro_batch_is_blocked_until_it_is_interrupted(stop):
    written, raised = [], []
    stop_check = StopCheck(stop)
    stop_check.query = FakeQuery(running=8)
    write = stop_check.guarded(lambda *_: written.append(8))

    def run():
        try:
            write("rows", 8)
        except InterruptedError as error:
            raised.append(str(error))

    stop.request()
    thread = threading.Thread(target=run)
    thread.start()
    while not stop.is_due(stop_check.query):  # it is there now
        thread.join(0.01)
    stop_check.query.isActive = False  # what query.stop() does first
    thread.join(30)
    assert not thread.is_alive()
    assert written == []
    assert "java.lang.InterruptedException" in raised[0]
