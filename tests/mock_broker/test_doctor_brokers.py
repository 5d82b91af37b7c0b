"""doctor's client on librdkafka's mock broker."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.doctor.brokers import Brokers
from spark_kafka_sink.librdkafka.error_codes import ErrorCode

_INIT_PRODUCER_ID = 22


def test_a_user_who_may_write_nothing_can_log_in(cluster):
    """The sink's settings enable idempotence; a client that sends nothing needs no right to it."""
    cluster.push_errors(_INIT_PRODUCER_ID, [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 10)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": "true"}
    with closing(Brokers(settings)) as brokers:
        for _ in range(20):  # a refusal would come after the login
            assert brokers.log_in(Deadline(10))


@pytest.mark.parametrize("lines", [1, 11, 14])
def test_the_command_ends_when_nobody_reads_its_output_any_more(cluster, lines):
    """As with ``| head``, before and after doctor has connected."""
    option = f"--option=kafka.bootstrap.servers={cluster.bootstrap_servers}"
    command = [sys.executable, "-m", "spark_kafka_sink", "doctor", option, "--option=topic=t"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as doctor:
        for _ in range(lines):
            doctor.stdout.readline()
        doctor.stdout.close()
        said = doctor.stderr.read().decode()
        doctor.wait(60)
    assert (said, doctor.returncode) == ("", 1)
