"""A fresh session writes two million rows of 100 B three times; each sink runs in its own process.

The sink under test is the first thing that the session uses. Rounds are interleaved. Argument:
rounds (default 3).
"""

from __future__ import annotations

import json
import sys
import time

from common import (
    AS_THEY_COME,
    FLOOR,
    FORMATS,
    LAUNCHED,
    SPARKS_OWN,
    WARMED,
    create_topics,
    fresh_session,
    measure_fresh_sessions,
    spread,
    table,
    write_table,
)

from spark_kafka_sink.tools.local_kafka import LocalKafka

ROWS, WRITES = 2_000_000, 3
PEERS = (SPARKS_OWN, LAUNCHED, WARMED, FLOOR)


def main() -> None:
    rounds = int(sys.argv[1]) if sys.argv[1:] else 3
    with LocalKafka() as kafka:
        create_topics(kafka.bootstrap_servers, ["cold"], partitions=4)
        figures = measure_fresh_sessions(__file__, PEERS, kafka.bootstrap_servers, rounds)
    theirs = figures[SPARKS_OWN]
    rows = [
        (
            peer,
            *(spread([run[number] for run in done], ".1f") for number in range(WRITES)),
            spread([sum(b) / sum(a) for a, b in zip(done, theirs, strict=True)]),
            spread([sum(b[1:]) / sum(a[1:]) for a, b in zip(done, theirs, strict=True)]),
        )
        for peer, done in figures.items()
    ]
    head = ("", "first 2 M rows, s", "second", "third", "ratio, all", "ratio, from the second on")
    write_table("cold", table(head, rows))


def one_session(peer: str, servers: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "topic": "cold"}
    options |= AS_THEY_COME
    spark, _ = fresh_session(peer, options)
    seconds = []
    for number in range(WRITES):
        ids = spark.range(number * ROWS, (number + 1) * ROWS, numPartitions=2)
        rows = ids.selectExpr(
            "concat('key-', id % 10000) as key",
            "lpad(cast(id as string), 100, 'abcdefgh') as value",
        )
        writer = rows.write.format(FORMATS[peer]).options(**options)
        started = time.monotonic()
        writer.mode("append").save()
        seconds.append(round(time.monotonic() - started, 2))
    spark.stop()
    print(json.dumps(seconds))


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in PEERS:
        one_session(*sys.argv[1:])
    else:
        main()
