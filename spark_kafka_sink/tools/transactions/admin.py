"""TransactionAdmin: queries the brokers about transactions, which librdkafka cannot (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.protocol.consumer.offsets import IsolationLevel

from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import BrokerUnavailable, KafkaSinkError, TransactionFailed
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset
from spark_kafka_sink.tools.transactions.login import login
from spark_kafka_sink.tools.transactions.state import (
    ActiveProducer,
    BlockedPartition,
    Partition,
    TransactionalId,
)

_RIGHTS: Mapping[type[Exception], str] = {
    kafka_errors.TransactionalIdAuthorizationFailedError: "Describe on transactional ids that "
    "begin with the prefix",
    kafka_errors.GroupAuthorizationFailedError: "Describe on consumer groups that begin with the "
    "prefix",
    kafka_errors.TopicAuthorizationFailedError: "Read on the topics, which includes Describe",
}


class TransactionAdmin:
    """kafka-python's admin client. Every method raises TransactionFailed or BrokerUnavailable.

    Connects when it is created, which also raises what ``login`` raises.
    """

    def __init__(self, settings: ClientSettings, deadline: Deadline) -> None:
        own = login(settings, deadline)
        milliseconds = max(1, int(deadline.remaining() * 1000))
        with _translating_errors():
            self._admin = KafkaAdminClient(
                **own, bootstrap_timeout_ms=milliseconds, request_timeout_ms=milliseconds
            )

    def producers(self) -> dict[str, int]:
        """Producer ids by transactional id, of those that the user may describe.

        (ListTransactions)
        """
        with _translating_errors():
            by_broker = self._admin.list_transactions()
        return {
            each.transactional_id: each.producer_id
            for listings in by_broker.values()
            for each in listings
        }

    def describe(self, names: Iterable[str]) -> list[TransactionalId]:
        """(DescribeTransactions)"""
        with _translating_errors():
            found = self._admin.describe_transactions(names)
        return [
            TransactionalId(
                name=name,
                state=each.state.value,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                timeout_ms=each.transaction_timeout_ms,
                started_at=(
                    each.transaction_start_time_ms / 1000
                    if each.transaction_start_time_ms >= 0
                    else None
                ),
                partitions=tuple(sorted(Partition(*part) for part in each.topic_partitions)),
            )
            for name, each in found.items()
        ]

    def partitions(self, topic: str) -> list[Partition]:
        """Empty if the topic does not exist."""
        with _translating_errors():
            (found,) = self._admin.describe_topics([topic])
            error = kafka_errors.for_code(found["error_code"])
            if error not in (kafka_errors.NoError, kafka_errors.UnknownTopicOrPartitionError):
                raise error(topic)
        return [Partition(topic, each["partition_index"]) for each in found["partitions"]]

    def offsets(self, partitions: Sequence[Partition]) -> list[BlockedPartition]:
        """The partitions' offsets, and their oldest open transactions.

        (ListOffsets in both isolation levels, DescribeProducers)
        """
        wanted = [TopicPartition(each.topic, each.number) for each in partitions]
        latest = dict.fromkeys(wanted, OffsetSpec.LATEST)
        with _translating_errors():
            stable = self._admin.list_partition_offsets(latest, IsolationLevel.READ_COMMITTED)
            ends = self._admin.list_partition_offsets(latest, IsolationLevel.READ_UNCOMMITTED)
            producers = self._admin.describe_producers(wanted)
        result = []
        for each, partition in zip(wanted, partitions, strict=True):
            active = [
                ActiveProducer(
                    found.producer_id, found.producer_epoch, found.current_transaction_start_offset
                )
                for found in producers[each].active_producers
                if found.current_transaction_start_offset >= 0
            ]
            oldest = min(active, key=lambda producer: producer.first_offset, default=None)
            result.append(
                BlockedPartition(partition, stable[each].offset, ends[each].offset, oldest)
            )
        return result

    def group_offsets(self, groups: Iterable[str]) -> dict[str, dict[Partition, CommittedOffset]]:
        """Committed offsets by group and partition; without those of open transactions.

        (OffsetFetch)
        """
        with _translating_errors():
            found = self._admin.list_group_offsets(dict.fromkeys(groups))
        return {
            group: {
                Partition(*part): CommittedOffset(each.offset, each.metadata or "")
                for part, each in by_partition.items()
                if each.offset >= 0
            }
            for group, by_partition in found.items()
        }

    def close(self) -> None:
        self._admin.close()


@contextmanager
def _translating_errors() -> Iterator[None]:
    try:
        yield
    except kafka_errors.KafkaError as error:
        raise _translated(error) from None


def _translated(error: kafka_errors.KafkaError) -> KafkaSinkError:
    if type(error) in _RIGHTS:
        return TransactionFailed(
            f"not authorized; grant this user {_RIGHTS[type(error)]} ({error})",
            code=type(error).__name__,
        )
    if isinstance(error, kafka_errors.UnsupportedVersionError):
        return TransactionFailed(
            f"transactions needs Kafka 3.0 or later on the brokers ({error})",
            code=type(error).__name__,
        )
    return BrokerUnavailable(f"the brokers do not answer: {error}. Try again, or run doctor")
