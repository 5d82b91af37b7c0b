"""The first row of a fresh process, from creating the producer to the acknowledgement.

This sink's producer with its prefetch, and confluent_kafka.Producer, both idempotent, on a broker
that answers at once; interleaved. Argument: rounds (default 10).
"""

from __future__ import annotations

import sys
import time

from common import create_topics, run_in_process, spread, table, write_table

PREFETCHED, PLAIN = "this sink's producer, prefetched", "confluent_kafka.Producer"


def main() -> None:
    from spark_kafka_sink.tools.local_kafka import LocalKafka

    rounds = int(sys.argv[1]) if sys.argv[1:] else 10
    figures: dict[str, list[float]] = {PREFETCHED: [], PLAIN: []}
    with LocalKafka() as kafka:
        create_topics(kafka.bootstrap_servers, ["row"])
        for number in range(rounds + 1):
            for kind, values in figures.items():
                milliseconds = run_in_process(__file__, kind, kafka.bootstrap_servers)
                if number:  # the broker's own first time is left out
                    values.append(milliseconds)
    rows = [(kind, spread(values, ".0f")) for kind, values in figures.items()]
    write_table("first_row", table(("", "First row acknowledged after, ms"), rows))


def prefetched(servers: str) -> float:
    import pyarrow as pa

    from spark_kafka_sink.config.options import parse
    from spark_kafka_sink.producer.cache import ProducerCache
    from spark_kafka_sink.records.arrow import split_by_topic

    options = parse({"kafka.bootstrap.servers": servers, "topic": "row"})
    batch = pa.record_batch({"value": pa.array(["row"])})
    started = time.monotonic()
    with ProducerCache().borrow(options) as lease:
        lease.prefetch(["row"])
        for records in split_by_topic(batch, "row").records:
            lease.send(records)
        lease.close(30)
        return time.monotonic() - started


def plain(servers: str) -> float:
    from confluent_kafka import Producer

    started = time.monotonic()
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    producer.produce("row", b"row")
    assert producer.flush(30) == 0
    return time.monotonic() - started


if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].isdigit():
        kind, servers = sys.argv[1:]
        print(1000 * (prefetched(servers) if kind == PREFETCHED else plain(servers)))
    else:
        main()
