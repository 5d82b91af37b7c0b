"""The strict client does what librdkafka does: the same programs on both, with a mock broker."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from client_pair import BATCH_BYTES, RECORD_BYTES, REPEATED, RealSide, Row, Step, StrictSide
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mock_cluster import MockCluster

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.error_codes import BATCH_ERRORS, ErrorCode

LARGEST = 25_000
ROWS = st.builds(
    Row,
    size=st.sampled_from([1, 1, 4_000, 13_000, LARGEST, RECORD_BYTES + 1]),
    key=st.sampled_from([b"a", b"b", b"c", b"d"]),
    column=st.sampled_from([None, None, None, 0, 1, 5]),
)
STEPS = st.builds(
    Step,
    sends=st.lists(st.lists(ROWS, min_size=1, max_size=5).map(tuple), min_size=1, max_size=4).map(
        tuple
    ),
    code=st.sampled_from([ErrorCode.NO_ERROR, *sorted(BATCH_ERRORS), *REPEATED]),
    first_only=st.booleans(),
    is_purged=st.sampled_from([False, False, False, True]),
    is_left=st.booleans(),
    is_detailed=st.booleans(),
)
TOPIC_NUMBERS = count()


@pytest.fixture(scope="module")
def cluster():
    with MockCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster):
    client = Client(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "batch.size": str(BATCH_BYTES),
            "message.max.bytes": str(RECORD_BYTES),
            "enable.idempotence": "true",
            "partitioner": "murmur2_random",
            "linger.ms": "0",
            "retry.backoff.ms": "1",
        }
    )
    yield client
    assert client.close(Deadline(5))


def what_no_answer_changes(step):
    """How a topic's records are divided, dropped or refused depends on when its metadata comes."""
    sends = tuple(
        tuple(replace(row, size=min(row.size, LARGEST)) for row in rows) for rows in step.sends
    )
    return replace(step, sends=sends, code=ErrorCode.NO_ERROR, is_purged=False)


@given(
    partitions=st.integers(1, 3),
    is_known=st.booleans(),
    steps=st.lists(STEPS, min_size=1, max_size=4),
    seed=st.integers(0, 2**16),
)
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_both_report_and_store_the_same(cluster, client, partitions, is_known, steps, seed):
    strict = StrictSide(partitions, seed)
    real = RealSide(cluster, client, f"topic-{next(TOPIC_NUMBERS)}", partitions)
    if is_known:
        real.learn()
    else:
        strict.forget()
        steps = [what_no_answer_changes(steps[0]), *steps[1:]]
    first_send = 1
    for step in steps:
        expected = strict.run(step, first_send)
        seen = real.run(step, first_send, strict.batches)
        assert seen == expected, f"{step}: {seen}"
        first_send += len(step.sends)
    expected_log = strict.log()
    assert real.log(len(expected_log)) == expected_log
