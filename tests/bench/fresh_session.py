"""The first micro-batch of a fresh session: Spark's own sink, this one, cold and warm, and none.

Every figure comes from a session in its own process; rounds are interleaved. A micro-batch is
1,000 rows of a text file. Argument: rounds (default 3).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from common import (
    SESSION_PEERS,
    create_topics,
    fresh_session,
    in_fresh_sessions,
    spread,
    table,
    write_figures,
)

from spark_kafka_sink.local_kafka import LocalKafka

ROWS, MICRO_BATCHES = 1000, 5


def main() -> None:
    rounds = int(sys.argv[1]) if sys.argv[1:] else 3
    with LocalKafka() as kafka:
        create_topics(kafka.bootstrap_servers, ["fresh"], partitions=2)
        figures = in_fresh_sessions(__file__, kafka.bootstrap_servers, rounds)
    names = ("first_seconds", "second_seconds", "later_seconds", "warm_up_seconds")
    rows = [(p, *(spread([each[n] for each in figures[p]]) for n in names)) for p in SESSION_PEERS]
    head = ("", "First micro-batch, s", "Second, s", "Later (median), s", "warm_up, s")
    write_figures("fresh_session", figures, table(head, rows))


def one_session(peer: str, servers: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "topic": "fresh"}
    spark, form, warm_up_seconds = fresh_session(peer, options)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.mkdir()
        for number in range(MICRO_BATCHES):
            (source / f"{number}.txt").write_text("\n".join(str(i) for i in range(ROWS)))
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
        writer = lines.writeStream.format(form).options(**options)
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
        started = time.monotonic()
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        whole_seconds = time.monotonic() - started
    seconds = [each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress]
    result = {
        "first_seconds": seconds[0],
        "second_seconds": seconds[1],
        "later_seconds": sorted(seconds[2:])[len(seconds[2:]) // 2],
        "warm_up_seconds": warm_up_seconds,
        "whole_query_seconds": whole_seconds,
    }
    spark.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in SESSION_PEERS:
        one_session(*sys.argv[1:])
    else:
        main()
