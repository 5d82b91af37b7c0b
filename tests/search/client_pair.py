"""The same steps on the strict client and on librdkafka with its mock broker.

Only outcomes are compared, no times: each step ends when every record is reported.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa
from mock_cluster import PRODUCE, MockCluster
from mock_reader import read
from strict_client import StrictClient, StrictTopic

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import AcknowledgedRecords, FailedRecords, TopicDescription
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.partitioner import (
    PartitionedRecords,
    group_by_partition,
    unpartitioned,
)

# Records have 1, 4,000, 13,000 or 25,000 bytes and there are at most 20 of them in a step: whether
# one more fits does not depend on how exactly a client counts what a record has besides its value.
BATCH_BYTES = 61_850
RECORD_BYTES = 100_000
#: a client sends a batch again if brokers answer it with one of these
REPEATED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_FOR_PARTITION)
_SECONDS = 30


@dataclass(frozen=True)
class Row:
    size: int
    key: bytes | None = None
    column: int | None = None


@dataclass(frozen=True)
class Step:
    """``sends`` while the partitions are held; then each batch is answered with ``code``.

    ``first_only``: only the first batch, if the topic has one partition. ``is_purged``: instead of
    being sent. ``is_left``: the client chooses the partitions.
    """

    sends: tuple[tuple[Row, ...], ...]
    code: int = ErrorCode.NO_ERROR
    first_only: bool = False
    is_purged: bool = False
    is_left: bool = False
    is_detailed: bool = False

    def is_first_only(self, partitions: int) -> bool:
        """Which of several partitions is first is nobody's promise."""
        return self.first_only and partitions == 1


@dataclass
class Outcome:
    """What is known after a step.

    ``homeless``: records for a partition that the topic does not have. They are refused if the
    client has metadata by then, and reported if it gets it later.
    """

    refused: Counter = field(default_factory=Counter)
    homeless: Counter = field(default_factory=Counter)
    acknowledged: Counter = field(default_factory=Counter)
    failed: Counter = field(default_factory=Counter)
    has_unreported: bool = False

    def add(self, event) -> None:
        if isinstance(event, AcknowledgedRecords):
            columns = (event.send_ids, event.partitions, event.counts)
            for send_id, partition, count in zip(*map(list, columns), strict=True):
                self.acknowledged[int(send_id), int(partition)] += int(count)
        elif isinstance(event, FailedRecords):
            row = (event.send_id, event.partition, event.code, event.possibly_persisted)
            for position in event.positions or [None] * event.count:
                if event.code == ErrorCode.UNKNOWN_PARTITION:
                    self.homeless[event.send_id, position] += 1
                    continue
                self.failed[(*row, position)] += 1

    @property
    def reported(self) -> int:
        counters = self.refused, self.homeless, self.acknowledged, self.failed
        return sum(counter.total() for counter in counters)


def partitioned(topic: str, partitions: int, step: Step, rows, send_id: int) -> PartitionedRecords:
    values = [f"{send_id}:{number}".ljust(row.size) for number, row in enumerate(rows)]
    columns = {"value": pa.array(values)}
    if any(row.key is not None for row in rows):
        columns["key"] = pa.array([row.key for row in rows], pa.binary())
    if any(row.column is not None for row in rows):
        columns["partition"] = pa.array([row.column for row in rows], pa.int32())
    if step.is_detailed:
        columns["timestamp"] = pa.array([1_700_000_000_000] * len(rows), pa.timestamp("ms"))
    (records,) = split_by_topic(pa.record_batch(columns), topic, 0, "timestamp").records
    if step.is_left:
        return unpartitioned(records)
    return group_by_partition(records, partitions, 0)


@dataclass
class CodedTopic(StrictTopic):
    """Its batches are answered with these codes, then stored."""

    codes: deque = field(default_factory=deque)

    def _verdict(self, batch):
        return [self.codes.popleft() if self.codes else ErrorCode.NO_ERROR] * len(batch)


class StrictSide:
    def __init__(self, partitions: int, seed: int) -> None:
        self.topic = CodedTopic(partitions, BATCH_BYTES, known_partitions=partitions)
        self.client = StrictClient({"t": self.topic}, Random(seed), BATCH_BYTES, RECORD_BYTES)
        self.batches = 0

    def forget(self) -> None:
        self.topic.known_partitions = None

    def run(self, step: Step, first_send: int) -> Outcome:
        outcome, client, partitions = Outcome(), self.client, self.topic.partitions
        with client.paused("t", range(partitions)):
            enqueue(client, "t", partitions, step, first_send, outcome)
            if step.is_purged:
                client.purge()
        if self.topic.known_partitions is None:
            client.learn("t")
        self._deliver(step)
        self.topic.codes.clear()
        for event in client.poll():
            outcome.add(event)
        outcome.has_unreported = client.has_unreported("t")
        return outcome

    def _deliver(self, step: Step) -> None:
        self.batches = 0
        if step.code and step.code not in REPEATED:
            is_first_only = step.is_first_only(self.topic.partitions)
            self.topic.codes.extend([step.code] * (1 if is_first_only else 1_000))
        while self.client.places:
            for place in self.client.places:
                if step.code in REPEATED:  # a batch that is sent again keeps its place
                    self.client.transmit(*place)
                    self.topic.leaderless.add(place[1])
                    self.client.answer(*place)
                    self.topic.leaderless.clear()
                self.client.transmit(*place)
                self.client.answer(*place)
                self.batches += 1

    def log(self) -> list[tuple[int, int, int]]:
        """Partition, delivery and position of each stored record."""
        return [
            (partition, *record.name)
            for (_, partition), batch in sorted(self.topic.log.items())
            for record in batch
        ]


class RealSide:
    """``name``: of a topic that nothing else uses."""

    def __init__(self, cluster: MockCluster, client: Client, name: str, partitions: int) -> None:
        self.cluster, self.client, self.name, self.partitions = cluster, client, name, partitions
        cluster.create_topic(name, partitions)
        cluster.clear_errors(PRODUCE)  # of a program that failed

    def learn(self) -> None:
        self.client.open_topic(self.name)
        self.client.describe_topics([self.name], _SECONDS)
        deadline, is_known = Deadline(_SECONDS), False
        while not is_known:
            assert not deadline.expired
            is_known = any(isinstance(e, TopicDescription) for e in self.client.poll(0.05))

    def run(self, step: Step, first_send: int, batches: int) -> Outcome:
        """``batches``: how many the step has."""
        outcome, client = Outcome(), self.client
        codes = [step.code] * batches if step.code else []
        if step.is_first_only(self.partitions):
            codes = codes[:1]
        if step.code in REPEATED:  # the mock broker would store the batches behind it
            codes = codes[: batches == 1]
        if codes:
            self.cluster.push_errors(PRODUCE, codes)
        with client.paused(self.name, range(self.partitions)):
            enqueue(client, self.name, self.partitions, step, first_send, outcome)
            if step.is_purged:
                client.purge()
        deadline = Deadline(_SECONDS)
        while outcome.reported < sum(map(len, step.sends)):
            assert not deadline.expired, outcome
            client.flush(0.001)
            for event in client.poll(0.05):
                outcome.add(event)
        outcome.has_unreported = client.has_unreported(self.name)
        return outcome

    def log(self, count: int) -> list[tuple[int, int, int]]:
        messages = read(self.cluster.bootstrap_servers, self.name, count, self.partitions)
        return [(m.partition(), *map(int, m.value().strip().split(b":"))) for m in messages]


def enqueue(
    client: Client | StrictClient,
    topic: str,
    partitions: int,
    step: Step,
    first_send: int,
    outcome: Outcome,
) -> None:
    for send_id, rows in enumerate(step.sends, first_send):
        records = partitioned(topic, partitions, step, rows, send_id)
        for position, code in client.enqueue(records, send_id):
            if code == ErrorCode.UNKNOWN_PARTITION:
                outcome.homeless[send_id, position] += 1
            else:
                outcome.refused[send_id, position, code] += 1
