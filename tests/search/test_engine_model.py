"""Any programs of sends, answers, faults and delays over the engine, on a strict client.

The invariants: each record is reported once; the records of a partition keep their order, also
those that are sent again; no good record suffers for a bad one; memory is bounded and returns to
zero; a topic's records wait for its metadata; a key keeps its partition.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, replace
from itertools import product
from random import Random

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
from strict_client import StrictClient, StrictTopic, key_partition

from spark_kafka_sink.config.added_settings import transactional
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.config.producer_options import BYTES_PER_RECORD, MISSING_TOPIC_SECONDS
from spark_kafka_sink.librdkafka.error_codes import MISSING_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.events import (
    BrokerError,
    ConfigurationDescription,
    RequestFailed,
    TopicDescription,
)
from spark_kafka_sink.producer.engine import Engine
from spark_kafka_sink.producer.sends import Send
from spark_kafka_sink.producer.topic_metadata import RECENT_SECONDS
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.partitioner import UNKNOWN_PARTITIONS
from spark_kafka_sink.records.record_size import BATCH_OVERHEAD_BYTES, record_bytes
from spark_kafka_sink.records.rejection import NULL_TOPIC, RejectedRecords

# The largest record and batch of the client. Without kafka.batch.size, the client's batches are
# larger than the engine thinks if there are dead letters.
MAX_BYTES = 60_000
TOPICS = ["t", "u"]
OLD_MS = 1_000
TOO_LARGE = 70_000
HIGH_PARTITION = 2
#: The size of its value; its columns partition, key, and timestamp in milliseconds. One choice, not
#: four, which take hypothesis longer than the record takes the engine.
ROW = st.sampled_from(
    list(
        product(
            [10, 4_000, 9_000, 14_000, 20_000, 35_000, 50_000, TOO_LARGE],
            [None, None, None, 0, HIGH_PARTITION],
            [None, b"a", b"b", b"c"],
            [None, None, None, OLD_MS],
        )
    )
)
#: of a topic, which holds no batch of the client's, and not even each record, or all of them.
#: Between half the client's batch and all of it, order needs limits that the sink can read.
LIMITS = st.sampled_from([18_000, 28_000, 10**6])
TOPIC = st.builds(
    StrictTopic,
    partitions=st.integers(1, 3),
    max_batch_bytes=LIMITS,
    is_compacted=st.sampled_from([False, False, False, True]),
    names_records=st.booleans(),
    rejects_old=st.sampled_from([False, False, False, True]),
)
#: what a program has besides sends and answers
FAULTS = st.sampled_from(["none", "limits change", "topics change", "all"])
MODES = st.sampled_from(["at-least-once", "at-least-once", "transactional"])
STEPS_TO_THE_END = 2_000


@dataclass(frozen=True)
class Sent:
    """A send: the size of each of its records in a batch of its own, its rows, and when it was."""

    send: Send
    topic: str
    sizes: list[int]
    rows: list[tuple]
    at: float


class Programs(RuleBasedStateMachine):
    """One engine, two topics and the one for dead letters."""

    @initialize(
        topics=st.tuples(TOPIC, TOPIC),
        letters_limit=LIMITS,
        can_read_limits=st.booleans(),
        has_dead_letters=st.booleans(),
        mode=MODES,
        faults=FAULTS,
        lifetime_ms=st.sampled_from([300_000, 8_000]),
        ends_early=st.sampled_from([False, False, True]),
        buffer_bytes=st.sampled_from([2**20, 10**7]),
        is_warm=st.booleans(),
        seed=st.integers(0, 2**16),
    )
    def start(
        self,
        topics,
        letters_limit,
        can_read_limits,
        has_dead_letters,
        mode,
        faults,
        lifetime_ms,
        ends_early,
        buffer_bytes,
        is_warm,
        seed,
    ):
        self.can_read_limits, self.has_dead_letters = can_read_limits, has_dead_letters
        self.faults, self.ends_early, self.random = faults, ends_early, Random(seed)
        self.is_transactional = mode == "transactional"
        self.topics = dict(zip(TOPICS, topics, strict=True)) | {DLQ: StrictTopic(1, letters_limit)}
        options = {
            "kafka.bootstrap.servers": "b:1",
            "kafka.max.request.size": str(MAX_BYTES),
            "kafka.buffer.memory": str(buffer_bytes),
            "kafka.metadata.max.age.ms": str(lifetime_ms),
            "kafka.metadata.evict.ms": str(lifetime_ms),
            **(DEAD_LETTERS if has_dead_letters else {}),
        }
        producer = parse(options).producer
        if self.is_transactional:
            producer = replace(producer, client=transactional(producer.client, "id", 60_000))
        self.limit_bytes = producer.buffer_memory_bytes
        self.clock = FakeClock()
        most_bytes = self.limit_bytes if has_dead_letters else MAX_BYTES
        self.client = StrictClient(self.topics, self.random, MAX_BYTES, most_bytes)
        self.client.on_record, self.client.on_refusal = self.on_record, self.on_refusal
        self.client.on_failure = self.on_failure
        self.engine = Engine(producer, self.client, self.clock)
        self.to_send = deque()
        self.sent = {}  # by id
        # What a topic's records were judged by, and since when.
        self.limits = {
            name: [(self.clock.now, topic.max_batch_bytes)] for name, topic in self.topics.items()
        }
        self.counts = {
            name: [(self.clock.now, topic.partitions)] for name, topic in self.topics.items()
        }
        self.passed = Counter()
        self.unchecked = set()
        self.answered, self.limits_answered, self.delegated = set(), set(), set()
        self.missing_since = {}
        # Topics whose limit is lower than the engine can know, and records passed on since then.
        self.lowered, self.risky = set(), set()
        # Records that may lose their place behind others, and that may fail.
        self.displaced, self.excused = set(), set()
        # Records that even a transaction may send again.
        self.repeatable = set()
        if is_warm:
            self.engine.prefetch(TOPICS)
            self.answer_all()

    # --- the task --------------------------------------------------------------------------------

    @property
    def is_waiting(self):
        return bool(self.to_send)

    @property
    def is_over(self):
        """A transaction ends with the first failure."""
        return self.is_transactional and self.engine.sends.first_failed is not None

    @precondition(lambda self: not self.is_waiting and not self.is_over)
    @rule(topic=st.sampled_from(TOPICS), rows=st.lists(ROW, min_size=1, max_size=12))
    def send(self, topic, rows):
        if self.faults == "none":  # nor are any records refused
            rows = [
                (min(size, 50_000), 0 if column else column, *others)
                for size, column, *others in rows
            ]
        self.to_send.append((columns_of(topic, rows), rows))
        self.proceed()

    @precondition(lambda self: self.has_dead_letters and not self.is_waiting and not self.is_over)
    @rule(rows=st.lists(ROW, min_size=1, max_size=3))
    def send_dead_letters(self, rows):
        """As ``NonBlockingProducer`` does for rows that cannot become records."""
        rejected = RejectedRecords(columns_of(TOPICS[0], rows), NULL_TOPIC, "no topic", None)
        self.to_send += [(letters, None) for letters in self.engine.dead_letters(rejected)]
        self.engine.sends.count_dead_letters(rejected)
        self.proceed()

    @precondition(lambda self: self.is_waiting and not self.is_over)
    @rule()
    def proceed(self):
        """All that is known here of how the engine takes records."""
        while self.to_send:
            records, rows = self.to_send[0]
            send = self.engine.send(records)
            if send is None:
                return
            self.to_send.popleft()
            sizes = (record_bytes(records) + BATCH_OVERHEAD_BYTES).tolist()
            self.sent[send.send_id] = Sent(send, records.topic, sizes, rows, self.clock.now)
        self.engine.send_due()

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0, 11.0]))
    def wait(self, seconds):
        self.clock.now += seconds
        self.handle()

    def handle(self, *others):
        """Read the client's events, and others behind them."""
        self.engine.on_events([*self.client.poll(), *others])
        self.engine.send_due()

    # --- client and brokers ----------------------------------------------------------------------

    @rule(place=st.integers(0, 20), times=st.integers(1, 5))
    def transmit(self, place, times):
        for topic, partition in self.chosen(place):
            for _ in range(times):
                self.client.transmit(topic, partition)

    @rule(place=st.integers(0, 20), times=st.integers(1, 5), is_read=st.booleans())
    def judge(self, place, times, is_read):
        for topic, partition in self.chosen(place):
            for _ in range(times):
                self.client.answer(topic, partition)
        if is_read:
            self.handle()

    # One rule, as each one is as likely as any other.
    @rule(topic=st.sampled_from([*TOPICS, DLQ]), what=st.sampled_from(["ask", "learn", "lose"]))
    def disturb(self, topic, what):
        if what == "ask":
            self.engine.prefetch([topic])
        elif what == "learn":
            self.learn(topic)
        elif self.faults != "none":
            self.handle(BrokerError(ErrorCode.TRANSPORT, "disconnected"))

    def learn(self, topic):
        # Else an answer with the topic could follow one without it before anybody knows of that:
        # a tenth of a second without any look at the client.
        self.handle()
        self.client.learn(topic)

    def chosen(self, place):
        places = self.client.places
        return [places[place % len(places)]] if places else []

    @precondition(lambda self: self.client.asked)
    @rule()
    def answer_about_topics(self):
        for topic in self.client.asked.pop(0):
            self.learn(topic)  # the client reads each answer, before the sink does
            self.handle(self.description(topic))

    def answer_all(self):
        if self.client.asked:
            self.answer_about_topics()
        if self.client.asked_configurations:
            self.answer_about_limits()

    def description(self, topic):
        state = self.topics[topic]
        if not state.error:
            self.answered.add(topic)
            self.missing_since.pop(topic, None)
            available = sorted(set(range(state.partitions)) - state.leaderless)
            return TopicDescription(topic, 0, state.partitions, tuple(available))
        since = self.missing_since.setdefault(topic, self.clock.now)
        if self.clock.now - since >= MISSING_TOPIC_SECONDS or self.is_forbidden(topic):
            self.excuse_all(topic)
        return TopicDescription(topic, state.error, 0, ())

    @precondition(lambda self: self.client.asked)
    @rule()
    def do_not_answer_about_topics(self):
        topics = self.client.asked.pop(0)
        self.delegated.update(topics)
        # A fault of the engine: with known partitions, and without limits, they are never checked.
        self.unchecked |= self.answered.intersection(topics)
        self.handle(RequestFailed(ErrorCode.TRANSPORT, topics))

    @precondition(lambda self: self.client.asked_configurations)
    @rule()
    def answer_about_limits(self):
        topic = self.client.asked_configurations.pop(0)
        self.limits_answered.add(topic)
        if self.can_read_limits:
            self.lowered.discard(topic)
            self.handle(ConfigurationDescription(topic, 0, self.topics[topic].settings))
        else:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            self.handle(ConfigurationDescription(topic, code, {}))

    # --- faults ----------------------------------------------------------------------------------

    @precondition(lambda self: self.faults in ("limits change", "all"))
    @rule(topic=st.sampled_from(TOPICS), limit=LIMITS, is_recent=st.booleans())
    def change_limit(self, topic, limit, is_recent):
        state = self.topics[topic]
        if limit < state.max_batch_bytes:
            self.lowered.add(topic)
            self.risky |= self.names(topic)
        state.max_batch_bytes = limit
        self.limits[topic].append((self.clock.now, limit))
        if not is_recent:
            self.wait(RECENT_SECONDS + 1)

    @precondition(lambda self: self.faults in ("topics change", "all"))
    @rule(
        topic=st.sampled_from(TOPICS),
        change=st.sampled_from(
            ["grow", "shrink", "shrink", "delete", "restore", "elect", "forbid"]
        ),
        is_noticed=st.booleans(),
    )
    def change_topic(self, topic, change, is_noticed):
        places = [place for place in self.client.places if place[0] == topic and is_noticed]
        for place in places:
            self.client.transmit(*place)
        self.apply(change, topic, self.topics[topic])
        if is_noticed:  # by the client, and by what it has in flight
            self.learn(topic)
        for place in places:
            self.client.answer(*place)

    def apply(self, change, topic, state):
        if change == "grow" and state.partitions < 4:
            state.partitions += 1
        elif change == "shrink" and state.partitions > 1:
            state.partitions = 1  # so that most of what is in flight has no partition any more
            state.generation += 1
        elif change == "delete":
            state.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            state.generation += 1
        elif change == "restore":
            state.error = ErrorCode.NO_ERROR
            state.leaderless.clear()
        elif change == "elect":
            state.leaderless.add(self.random.randrange(state.partitions))
        elif self.random.random() < 0.3:  # excuses all of its records
            state.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self.counts[topic].append((self.clock.now, state.partitions))

    @precondition(lambda self: self.faults == "all")
    @rule(place=st.integers(0, 20))
    def time_out(self, place):
        for topic, partition in self.chosen(place):
            self.client.time_out(topic, partition)

    def is_forbidden(self, topic):
        return self.topics[topic].error == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def names(self, topic):
        """Of all records sent so far."""
        return {
            (send_id, position)
            for send_id, sent in self.sent.items()
            if sent.topic == topic
            for position in range(len(sent.sizes))
        }

    def excuse_all(self, topic):
        self.excused |= self.names(topic)

    def on_record(self, topic, record):
        assert topic in self.delegated | self.answered, topic
        if self.has_dead_letters or self.is_transactional:
            assert topic in self.delegated | self.limits_answered, topic
        assert self.engine.topics.sendable(topic) is not None, topic
        if topic != DLQ and not self.passed[record.name] and self.is_checked(topic):
            assert self.topics[topic].accepts(record), record
        self.passed[record.name] += 1
        if topic in self.lowered:
            self.risky.add(record.name)

    def is_checked(self, topic):
        """Whether records that the topic's brokers would reject must not reach the client."""
        is_wanted = self.has_dead_letters or self.is_transactional
        is_certain = len(self.limits[topic]) == 1 and self.engine.topics.limits(topic) is not None
        is_delegated = self.engine.topics.sendable(topic).partitions == UNKNOWN_PARTITIONS
        return is_wanted and is_certain and not is_delegated and topic not in self.unchecked

    def on_refusal(self, topic, record, code):
        self.on_failure(topic, [record], [code], False)

    def on_failure(self, topic, records, codes, possibly_persisted):
        for record, code in zip(records, codes, strict=True):
            is_missing = code in MISSING_ERRORS
            is_unexpected = code == ErrorCode.MSG_SIZE_TOO_LARGE and record.name in self.risky
            if code != ErrorCode.MSG_SIZE_TOO_LARGE or is_unexpected:
                self.displaced.add(record.name)
            is_retried = self.has_dead_letters and topic != DLQ if is_missing else code > 0
            is_retried |= code == ErrorCode.INVALID_DIFFERENT_RECORD
            is_retried &= code != ErrorCode.TOPIC_AUTHORIZATION_FAILED and not possibly_persisted
            if is_missing:
                self.repeatable.add(record.name)
            if self.is_transactional or not is_retried:
                self.excused.add(record.name)

    # --- what holds ------------------------------------------------------------------------------

    @invariant()
    def memory_is_bounded(self):
        """Dead letters add their own bytes to Arrow batches that were admitted."""
        sends = self.engine.sends
        letters_bytes = sum(
            records.own_bytes + len(records) * BYTES_PER_RECORD
            for records in sends._records.values()
            if records.topic == DLQ
        )
        is_within = sends._buffered_bytes - letters_bytes <= self.limit_bytes
        assert is_within or len(sends._sends_by_arrow_batch) == 1

    @invariant()
    def no_record_is_reported_twice(self):
        for sent in self.sent.values():
            assert sent.send.outstanding >= 0, sent

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        if self.ends_early or self.is_over:
            self.close()
        else:
            self.finish()
        self.every_record_is_reported_once()
        self.only_bad_records_fail()
        self.order_is_kept()
        self.partitions_are_right()

    def finish(self):
        """The topics are well again, and the task waits for its records."""
        for topic in self.topics.values():
            topic.error = ErrorCode.NO_ERROR
            topic.leaderless.clear()
        for _ in range(STEPS_TO_THE_END):
            if self.is_over:
                self.close()
                return
            self.proceed()
            if not self.engine.sends:
                break
            for topic in self.topics:
                self.learn(topic)
            self.answer_all()
            for place in self.client.places:
                self.client.transmit(*place)
                self.client.answer(*place)
            self.wait(0.1)
        assert not self.engine.sends, "records are not reported"
        for sent in self.sent.values():
            assert sent.send.count == len(sent.sizes)
        report = self.engine.sends.report
        letters = sum(n for (name, _), n in report.acknowledged_records.items() if name == DLQ)
        letters += sum(n for (name, *_), n in report.failed_records.items() if name == DLQ)
        assert letters == report.dead_letters.total()

    def close(self):
        """As the producer does; not all of the client's last reports may be read."""
        self.engine.abort()
        self.client.purge()
        events = list(self.client.poll())
        self.engine.on_events(events[: self.random.randint(0, len(events))])
        self.engine.fail_unreported()
        for topic in self.topics:
            self.excuse_all(topic)

    def every_record_is_reported_once(self):
        sends = self.engine.sends
        assert not sends, "records are not reported"
        assert sends._buffered_bytes == 0
        for sent in self.sent.values():
            send = sent.send
            counts = send.acknowledged, send.total_failed, send.dead_letters
            assert sum(counts) == send.count, counts
        report = sends.report
        for topic in self.topics:
            reported = sum(
                n for (name, _), n in report.acknowledged_records.items() if name == topic
            )
            reported += sum(n for (name, *_), n in report.failed_records.items() if name == topic)
            assert reported == report.sent_records[topic], topic

    def stored(self):
        """Topic, generation, partition and records of each log."""
        for topic in TOPICS:
            for (generation, partition), log in self.topics[topic].log.items():
                yield topic, generation, partition, log

    def only_bad_records_fail(self):
        stored = Counter(record.name for *_, log in self.stored() for record in log)
        assert max(stored.values(), default=1) == 1, "stored twice"
        for send_id, sent in self.sent.items():
            names = [(send_id, position) for position in range(len(sent.sizes))]
            if sent.rows is not None:
                for name in names:
                    if name not in self.excused and self.is_good(sent, name[1]):
                        assert stored[name], (name, sent.rows[name[1]])
                assert sent.send.acknowledged <= sum(stored[name] for name in names)
            if self.is_transactional:
                retried = [name for name in names if self.passed[name] > 1]
                assert self.repeatable.issuperset(retried), retried

    def is_good(self, sent, position):
        """Whether the topic has accepted the record at any time since it was sent."""
        _, column, key, time_ms = sent.rows[position]
        state, since = self.topics[sent.topic], sent.at - RECENT_SECONDS
        limit = self.lowest(self.limits[sent.topic], since)
        # What the client itself has found out may be older.
        is_of_client = state.generation > 0 or sent.topic in self.delegated
        partitions = self.lowest(self.counts[sent.topic], 0.0 if is_of_client else since)
        return (
            sent.sizes[position] <= min(limit, MAX_BYTES)
            and (column is None or column < partitions)
            and not (state.rejects_old and time_ms == OLD_MS)
            and not (state.is_compacted and key is None)
        )

    def lowest(self, changes, since):
        """Of the values with their times, the lowest that held at any time since then."""
        ends = [at for at, _ in changes[1:]] + [self.clock.now]
        return min(value for (_, value), end in zip(changes, ends, strict=True) if end >= since)

    def order_is_kept(self):
        """Also among those that had to give way to later ones, if they have the same key.

        Others may come from different partitions, of a topic that was created again.
        """
        for topic, _, partition, log in self.stored():
            for is_displaced in (False, True):
                names = defaultdict(list)
                for record in log:
                    if (record.name in self.displaced) == is_displaced:
                        names[record.key if is_displaced else ...].append(record.name)
                for some in names.values():
                    assert some == sorted(some), (topic, partition, some)

    def partitions_are_right(self):
        for topic, _, partition, log in self.stored():
            for record in log:
                if record.column is not None:
                    assert partition == record.column
                elif record.key is not None:
                    possible = {key_partition(record.key, n) for _, n in self.counts[topic]}
                    assert partition in possible, (topic, partition, record)


def columns_of(topic, rows):
    sizes, partitions, keys, times = zip(*rows, strict=True)
    columns = {"value": pa.array(["v" * size for size in sizes])}
    if any(partition is not None for partition in partitions):
        columns["partition"] = pa.array(partitions, pa.int32())
    if any(key is not None for key in keys):
        columns["key"] = pa.array(keys, pa.binary())
    if any(time is not None for time in times):
        columns["timestamp"] = pa.array(times, pa.timestamp("ms"))
    (records,) = split_by_topic(pa.record_batch(columns), topic, 0, "timestamp").records
    return records


@pytest.mark.timeout(600)  # a minute of CPU, on a machine that others use too
@pytest.mark.parametrize("programs", [150, pytest.param(1_500, marks=pytest.mark.slow)])
def test_order_accounting_and_memory_hold_in_any_program(programs):
    """The same programs in each run; ``make search`` tries others."""
    run_state_machine_as_test(
        Programs, settings=settings(max_examples=programs, stateful_step_count=30, derandomize=True)
    )
