"""Bits that change on the way: TLS notices each one, and nothing is lost, doubled or changed."""

from __future__ import annotations

from collections import Counter

import pytest
import trustme
from bit_flips import BitFlips
from certificates import write_pem
from local_cluster import LocalCluster, Security
from pyspark.errors import StreamingQueryException
from streams import direct, stream_of
from topics import Topics

from spark_kafka_sink import errors

WORDS = [[f"{batch}-{row} {'x' * 90}" for row in range(400)] for batch in range(6)]
SHARE = 0.02
STARTS = 20
NAMES = [name for name, value in vars(errors).items() if isinstance(value, type)]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return trustme.CA()


@pytest.fixture(scope="module")
def flips(authority, tmp_path_factory):
    """The way to a broker that wants TLS."""
    folder = tmp_path_factory.mktemp("flips")
    security = Security(write_pem(authority.issue_cert("127.0.0.1"), folder / "broker.pem"))
    with BitFlips(lambda: kafka.bootstrap_servers, seed=29) as flips:
        kafka = LocalCluster(security=security, advertised_ports=[flips.port])
        with kafka:
            flips.topics = Topics(kafka.internal_servers)
            yield flips


@pytest.mark.parametrize("way", ["foreach_batch", "exactly-once"])
def test_with_tls_bits_that_change_on_the_way_do_no_harm(spark, authority, flips, tmp_path, way):
    topic = flips.topics.create()
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{flips.port}",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
        "kafka.reconnect.backoff.max.ms": "200",
        # Small requests, and many.
        "kafka.max.request.size": "2000",
        "topic": topic,
    }
    before = flips.count
    flips.share = SHARE
    try:
        run(spark, options, tmp_path, way)
    finally:
        flips.share = 0.0
    assert flips.count > before
    counts = Counter(record.value.decode() for record in flips.topics.read(topic))
    expected = {word for words in WORDS for word in words}
    assert set(counts) == expected
    if way == "exactly-once":
        assert set(counts.values()) == {1}


def run(spark, options, tmp_path, way):
    """Write all micro-batches; a query that fails by name starts again, as a job's does."""
    words = stream_of(spark, tmp_path / "in", *WORDS).coalesce(1)
    for _ in range(STARTS):
        writer = words.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.trigger(availableNow=True)
        writer = direct(writer, way, options)
        try:
            query = writer.start()
            assert query.awaitTermination(240)
            return
        except StreamingQueryException as failure:
            if not any(name in str(failure) for name in NAMES):
                raise
    pytest.fail(f"{STARTS} starts were not enough")
