"""The first micro-batch of a fresh session: Spark's own sink, this sink, and this sink warmed up.

Every figure comes from a session in a process of its own; rounds are interleaved. A micro-batch is
1,000 rows of a text file. Argument: rounds (default 3).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import FORMATS, OURS, SPARKS_OWN, create_topics, session, spread, table, write_figures

WARMED = "this sink after warm_up"
PEERS = (SPARKS_OWN, OURS, WARMED)
ROWS, MICRO_BATCHES = 1000, 5


def main() -> None:
    from spark_kafka_sink.local_kafka import LocalKafka

    rounds = int(sys.argv[1]) if sys.argv[1:] else 3
    figures: dict[str, list[dict[str, float]]] = {peer: [] for peer in PEERS}
    with LocalKafka() as kafka:
        create_topics(kafka.bootstrap_servers, ["fresh"], partitions=2)
        for _ in range(rounds):
            for peer in PEERS:
                command = [sys.executable, __file__, peer, kafka.bootstrap_servers]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                figures[peer].append(json.loads(done.stdout.splitlines()[-1]))
                print(peer, figures[peer][-1], flush=True)
    names = ("first_seconds", "second_seconds", "later_seconds", "warm_up_seconds")
    rows = [(p, *(spread([each[n] for each in figures[p]]) for n in names)) for p in PEERS]
    head = ("", "First micro-batch, s", "Second, s", "Later (median), s", "warm_up, s")
    write_figures("fresh_session", figures, table(head, rows))


def one_session(peer: str, servers: str) -> None:
    from spark_kafka_sink import warm_up

    spark = session()
    options = {"kafka.bootstrap.servers": servers, "topic": "fresh"}
    warm_up_seconds = 0.0
    if peer == WARMED:
        done = warm_up(spark, options)
        assert not done.problem, done.problem
        warm_up_seconds = done.seconds
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.mkdir()
        for number in range(MICRO_BATCHES):
            (source / f"{number}.txt").write_text("\n".join(str(i) for i in range(ROWS)))
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
        writer = lines.writeStream.format(FORMATS.get(peer, FORMATS[OURS])).options(**options)
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
    if sys.argv[1:] and sys.argv[1] in PEERS:
        one_session(*sys.argv[1:])
    else:
        main()
