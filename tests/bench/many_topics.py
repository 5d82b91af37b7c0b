"""5,000 topics, 50 at a time: the memory of a process and its metadata requests.

This sink's producers, which evict topics without new records, and one confluent_kafka.Producer
that does the same work; both refresh metadata every five seconds. Each runs in its own process,
through a proxy that counts. Argument: number of topics (default 5,000).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from common import argument, create_topics, run_in_process, table, write_table
from kafka_proxy import proxied_kafka

EVICTING, PLAIN = "this sink's producers", "confluent_kafka.Producer"
AT_A_TIME, ROWS_A_TOPIC, STEP_SECONDS = 50, 20, 0.5
REFRESH_MS = "5000"


def main() -> None:
    names = [f"many-{number:05}" for number in range(argument(1, 5000))]
    figures = {}
    with proxied_kafka() as (proxy, _):
        servers = f"127.0.0.1:{proxy.port}"
        create_topics(servers, names)
        for kind in (EVICTING, PLAIN):
            proxy.reset()
            done = run_in_process(__file__, kind, servers, str(len(names)))
            asked = [request.topics for request in proxy.metadata_requests]
            figures[kind] = {
                **done,
                "requests": len(asked),
                "largest_request_topics": max(asked),
                "topics_asked_for": sum(asked),
            }
            print(kind, figures[kind], flush=True)
    rows = [
        (
            kind,
            f"{figure['resident_mib'][0]:.0f}",
            f"{figure['resident_mib'][len(figure['resident_mib']) // 2]:.0f}",
            f"{figure['resident_mib'][-1]:.0f}",
            figure["requests"],
            figure["largest_request_topics"],
            figure["topics_asked_for"],
            f"{figure['seconds']:.0f}",
        )
        for kind, figure in figures.items()
    ]
    head = (
        f"{len(names)} topics, {AT_A_TIME} at a time",
        "MiB after the first 50",
        "half-way",
        "at the end",
        "metadata requests",
        "topics in the largest",
        "in all",
        "seconds",
    )
    write_table("many_topics", table(head, rows))


def resident_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def work(kind: str, servers: str, count: str) -> None:
    write = evicting(servers) if kind == EVICTING else plain(servers)
    resident, started = [], time.monotonic()
    for step, first in enumerate(range(0, int(count), AT_A_TIME)):
        write([f"many-{number:05}" for number in range(first, first + AT_A_TIME)])
        resident.append(round(resident_mib(), 1))
        time.sleep(max(0.0, started + (step + 1) * STEP_SECONDS - time.monotonic()))
    print(json.dumps({"resident_mib": resident, "seconds": time.monotonic() - started}))


def evicting(servers: str):
    import pyarrow as pa

    from spark_kafka_sink.config.options import parse
    from spark_kafka_sink.producer.cache import ProducerCache
    from spark_kafka_sink.records.arrow import split_by_topic

    ages = {"kafka.metadata.max.age.ms": REFRESH_MS, "kafka.metadata.evict.ms": REFRESH_MS}
    options = parse({"kafka.bootstrap.servers": servers, **ages})
    cache = ProducerCache()

    def write(topics):
        batch = pa.record_batch(
            {
                "topic": pa.array(topics * ROWS_A_TOPIC),
                "value": pa.array(["x" * 100] * len(topics) * ROWS_A_TOPIC),
            }
        )
        with cache.borrow(options) as lease:
            all_records = split_by_topic(batch, None).records
            lease.prefetch(records.topic for records in all_records)
            for records in all_records:
                lease.send(records)
            lease.close(60)

    return write


def plain(servers: str):
    from confluent_kafka import Producer

    settings = {"enable.idempotence": True, "topic.metadata.refresh.interval.ms": REFRESH_MS}
    producer = Producer({"bootstrap.servers": servers, **settings})

    def write(topics):
        for _ in range(ROWS_A_TOPIC):
            for topic in topics:
                producer.produce(topic, b"x" * 100)
        assert producer.flush(60) == 0

    return write


if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].isdigit():
        work(*sys.argv[1:])
    else:
        main()
