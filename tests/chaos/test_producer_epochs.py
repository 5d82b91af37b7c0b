"""The producer's epoch of a record, as a real broker's log has it."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from producer_epochs import ProducerEpochs

from spark_kafka_sink.tools.local_kafka import LocalKafka

SECONDS = 60.0
pytestmark = pytest.mark.slow


def write_transactions(servers, topic, *transactions):
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "same"})
    producer.init_transactions(SECONDS)
    for values in transactions:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.commit_transaction(SECONDS)


def test_an_id_that_begins_again_has_the_next_epoch():
    with LocalKafka() as kafka:
        write_transactions(kafka.bootstrap_servers, "t", [b"0", b"1"])
        before = ProducerEpochs(kafka.folder, "t").epoch_of(0, 0)
        write_transactions(kafka.bootstrap_servers, "t", [b"3"])
        epochs = ProducerEpochs(kafka.folder, "t")
        assert epochs.epoch_of(0, 0) == epochs.epoch_of(0, 1) == before
        after = epochs.epoch_of(0, 3)  # the mark of the commit is at 2
        assert after.producer_id == before.producer_id
        assert after.epoch > before.epoch


def test_transactions_of_one_producer_are_told_apart():
    with LocalKafka() as kafka:
        write_transactions(kafka.bootstrap_servers, "t", [b"0", b"1"], [b"3"])
        written_in = ProducerEpochs(kafka.folder, "t").transaction_of
        assert written_in(0, 0) == written_in(0, 1)
        assert (written_in(0, 0).ends_before, written_in(0, 3).ends_before) == (0, 1)
