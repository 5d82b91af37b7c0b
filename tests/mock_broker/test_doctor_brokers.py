"""doctor's client on librdkafka's mock broker."""

from __future__ import annotations

from contextlib import closing

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.doctor.brokers import Brokers
from spark_kafka_sink.librdkafka.error_codes import ErrorCode

_INIT_PRODUCER_ID = 22


def test_a_user_who_may_write_nothing_can_log_in(cluster):
    """The sink's settings ask for idempotence, but a client that sends nothing needs no right."""
    cluster.push_errors(_INIT_PRODUCER_ID, [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 10)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": "true"}
    with closing(Brokers(settings)) as brokers:
        for _ in range(20):  # a refusal would come after the login
            assert brokers.log_in(Deadline(10))
