"""Names of brokers that stop resolving, or whose look-ups hang, between two tasks."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import DeadlineExceeded
from spark_kafka_sink.spark.writer import write_partition


def batch(value):
    return pa.record_batch({"value": [value]})


def not_resolving(resolver):
    return resolver.not_resolving("broker.test", "127.0.0.1")


def hanging(resolver):
    return resolver.hanging()


@pytest.mark.parametrize(
    ("outage", "reason"),
    [
        (not_resolving, "Failed to resolve.*Name or service not known"),
        (hanging, "within 2 s.*Check that the brokers are reachable"),
    ],
)
def test_a_task_fails_by_its_deadline_and_the_next_one_goes_on(
    options, cluster, resolver, outage, reason
):
    given = options(
        kafka_bootstrap_servers=cluster.bootstrap_servers.replace("127.0.0.1", "broker.test"),
        kafka_broker_address_ttl="0",
        close_timeout_ms="2000",
    )
    assert write_partition([batch("before")], given).total_sent == 1
    with outage(resolver):
        cluster.set_down(1)  # closes the connections
        cluster.set_up(1)
        with pytest.raises(DeadlineExceeded, match=reason):
            write_partition([batch("meanwhile")], given)
    assert write_partition([batch("after")], given).total_sent == 1
