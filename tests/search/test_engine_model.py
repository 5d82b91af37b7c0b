"""Any programs of sends, answers and delays over the engine: order, accounting and memory hold."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from fake_clock import FakeClock
from fake_engine import DEAD_LETTERS, DLQ
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from strict_client import StrictClient, StrictTopic

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import (
    ConfigurationDescription,
    RequestFailed,
    TopicDescription,
)
from spark_kafka_sink.producer.engine import Engine
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.record_size import BATCH_OVERHEAD_BYTES, record_bytes

MOST_BYTES = 60_000  # a request of the client
TOPICS = ["t", "u"]
SIZES = st.sampled_from([10, 4_000, 9_000, 14_000, 20_000, 35_000, 50_000])
#: of a topic, which holds no batch of the client's, and not even each record, or all of them.
#: Between half the client's batch and all of it, order needs limits that the sink can read.
LIMITS = st.sampled_from([18_000, 28_000, 10**6])
STEPS_TO_THE_END = 2_000


class Programs(RuleBasedStateMachine):
    """One engine, two topics and the one for dead letters."""

    @initialize(
        limits=st.tuples(LIMITS, LIMITS),
        partitions=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        can_read_limits=st.booleans(),
        has_dead_letters=st.booleans(),
        buffer_bytes=st.sampled_from([2**20, 10**7]),
        random=st.randoms(use_true_random=False),
    )
    def start(self, limits, partitions, can_read_limits, has_dead_letters, buffer_bytes, random):
        self.can_read_limits = can_read_limits
        self.topics = {
            topic: StrictTopic(count, limit)
            for topic, count, limit in zip(TOPICS, partitions, limits, strict=True)
        }
        self.topics[DLQ] = StrictTopic(1, 10**6)
        options = {
            "kafka.bootstrap.servers": "b:1",
            "kafka.max.request.size": str(MOST_BYTES),
            "kafka.buffer.memory": str(buffer_bytes),
            **(DEAD_LETTERS if has_dead_letters else {}),
        }
        producer = parse(options).producer
        self.limit_bytes = producer.buffer_memory_bytes
        self.clock = FakeClock()
        self.client = StrictClient(self.topics, random, producer.client.max_batch_bytes)
        self.engine = Engine(producer, self.client, self.clock)
        self.client.is_sendable = lambda topic: self.engine.topics.partitions(topic) is not None
        self.pending = None
        #: what was sent, by send: topic and sizes of its records
        self.sent = {}

    # --- the task --------------------------------------------------------------------------------

    @precondition(lambda self: self.pending is None)
    @rule(
        topic=st.sampled_from(TOPICS),
        sizes=st.lists(SIZES, min_size=1, max_size=12),
        chosen=st.lists(st.sampled_from([None, 0]), min_size=12, max_size=12),
        keys=st.lists(st.sampled_from([None, b"a", b"b", b"c"]), min_size=12, max_size=12),
    )
    def send(self, topic, sizes, chosen, keys):
        columns = {
            "value": pa.array(["v" * size for size in sizes]),
            "key": pa.array(keys[: len(sizes)], pa.binary()),
            "partition": pa.array(chosen[: len(sizes)], pa.int32()),
        }
        (records,) = split_by_topic(pa.record_batch(columns), topic, 0).records
        self.pending = records
        self.send_again()

    @precondition(lambda self: self.pending is not None)
    @rule()
    def send_again(self):
        records = self.pending
        send = self.engine.send(records)
        if send is not None:
            alone = (record_bytes(records) + BATCH_OVERHEAD_BYTES).tolist()
            self.sent[send.send_id] = send, records.topic, alone
            self.pending = None
        self.engine.send_due()

    # --- client and brokers ----------------------------------------------------------------------

    @rule(place=st.integers(0, 20), times=st.integers(1, 5))
    def transmit(self, place, times):
        for topic, partition in self.chosen(place):
            for _ in range(times):
                self.client.transmit(topic, partition)

    @rule(place=st.integers(0, 20), times=st.integers(1, 5))
    def judge(self, place, times):
        for topic, partition in self.chosen(place):
            for _ in range(times):
                self.client.answer(topic, partition)
        self.handle()

    def chosen(self, place):
        places = self.client.places
        return [places[place % len(places)]] if places else []

    def handle(self, *others):
        events, self.client.events = [*self.client.events, *others], []
        self.engine.on_events(events)
        self.engine.send_due()

    @precondition(lambda self: self.client.asked)
    @rule()
    def answer_about_topics(self):
        answers = []
        for topic in self.client.asked.pop(0):
            self.client.learn(topic)  # the client reads each answer, before the sink does
            count = self.topics[topic].partitions
            answers.append(TopicDescription(topic, 0, count, tuple(range(count))))
        self.handle(*answers)

    @precondition(lambda self: self.client.asked)
    @rule()
    def do_not_answer_about_topics(self):
        self.handle(RequestFailed(ErrorCode.TRANSPORT, self.client.asked.pop(0)))

    @precondition(lambda self: self.client.asked_configurations)
    @rule()
    def answer_about_limits(self):
        topic = self.client.asked_configurations.pop(0)
        code = 0 if self.can_read_limits else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        described = {"max.message.bytes": str(self.topics[topic].max_batch_bytes)}
        self.handle(ConfigurationDescription(topic, code, {} if code else described))

    @rule(topic=st.sampled_from(TOPICS))
    def learn(self, topic):
        self.client.learn(topic)

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0]))
    def wait(self, seconds):
        self.clock.now += seconds
        self.handle()

    # --- what holds ------------------------------------------------------------------------------

    @invariant()
    def memory_is_bounded(self):
        sends = self.engine.sends
        assert sends._buffered_bytes <= self.limit_bytes or len(sends._batches) == 1

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        for topic in self.topics:
            self.client.learn(topic)
        for _ in range(STEPS_TO_THE_END):
            if not self.engine.sends:
                break
            if self.pending is not None:
                self.send_again()
            if self.client.asked:
                self.answer_about_topics()
            if self.client.asked_configurations:
                self.answer_about_limits()
            for place in self.client.places:
                self.client.transmit(*place)
                self.client.answer(*place)
            self.wait(0.1)
        self.every_record_is_reported_once()
        self.only_bad_records_are_rejected()
        self.order_is_kept()

    def every_record_is_reported_once(self):
        sends = self.engine.sends
        assert not sends, "records are not reported"
        assert sends._buffered_bytes == 0
        for send, _, sizes in self.sent.values():
            counts = send.acknowledged, send.total_failed, send.rejected
            assert sum(counts) == len(sizes), counts

    def only_bad_records_are_rejected(self):
        stored = Counter(
            (record.send_id, record.position)
            for topic in TOPICS
            for log in self.topics[topic].log.values()
            for record in log
        )
        for send_id, (_, topic, sizes) in self.sent.items():
            most = min(self.topics[topic].max_batch_bytes, MOST_BYTES)
            for position, size in enumerate(sizes):
                is_good = size <= most
                assert stored[send_id, position] == is_good, (send_id, position, size)

    def order_is_kept(self):
        for topic in TOPICS:
            for partition, log in self.topics[topic].log.items():
                places = [(record.send_id, record.position) for record in log]
                assert places == sorted(places), (topic, partition, places)


@pytest.mark.parametrize("programs", [100, pytest.param(1_000, marks=pytest.mark.slow)])
def test_order_accounting_and_memory_hold_in_any_program(programs):
    run_state_machine_as_test(
        Programs, settings=settings(max_examples=programs, stateful_step_count=25)
    )
