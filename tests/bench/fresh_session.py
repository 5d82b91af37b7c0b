"""The first micro-batch of a fresh session: Spark's own sink, the ways to use this one, and none.

Every figure comes from a session in its own process; rounds are interleaved. A micro-batch is
1,000 rows of a text file. The first is timed from ``start()`` to its end, which includes whatever a
way does in ``start()`` itself; the later ones by Spark's ``triggerExecution``. The start of the
session is not included. ``warm_up`` and ``load()`` of the source, which come before ``start()``,
have columns of their own. So has the memory of all processes (PSS) after the last micro-batch.
Argument: rounds (default 5).
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from common import (
    FLOOR,
    FOREACH_BATCH,
    FOREACH_BATCH_LAUNCHED,
    FROM_DRIVER,
    LAUNCHED,
    OURS,
    SPARKS_OWN,
    WARMED,
    argument,
    create_topics,
    direct_to_peer,
    fresh_session,
    measure_fresh_sessions,
    pyplot,
    save_plot,
    spread,
    table,
    write_table,
)

from spark_kafka_sink.tools.local_kafka import LocalKafka

PEERS = (
    SPARKS_OWN,
    OURS,
    LAUNCHED,
    FOREACH_BATCH,
    FOREACH_BATCH_LAUNCHED,
    FROM_DRIVER,
    WARMED,
    FLOOR,
)
ROWS, MICRO_BATCHES = 1000, 5
COLOURS = {SPARKS_OWN: "tab:orange", FLOOR: "tab:gray"}


def main() -> None:
    rounds = argument(1, 5)
    with LocalKafka() as kafka:
        create_topics(kafka.bootstrap_servers, ["fresh"], partitions=2)
        figures = measure_fresh_sessions(__file__, PEERS, kafka.bootstrap_servers, rounds)
    names = ("first_seconds", "second_seconds", "later_seconds")
    rows = [
        (
            peer,
            *(spread([run[name] for run in done]) for name in names),
            spread([run["source_seconds"] for run in done]),
            spread([run["warm_up_seconds"] for run in done]) if peer == WARMED else "-",
            spread([run["memory_mib"] for run in done], ".0f"),
        )
        for peer, done in figures.items()
    ]
    head = ("", "start() to the end of the first micro-batch, s", "Second, s", "Later (median), s")
    others = ("load() before, s", "warm_up before, s", "All processes, MiB")
    write_table("fresh_session", table((*head, *others), rows))
    plot(figures)


def one_session(peer: str, servers: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "topic": "fresh"}
    spark, warm_up_seconds = fresh_session(peer, options)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.mkdir()
        for number in range(MICRO_BATCHES):
            (source / f"{number}.txt").write_text("\n".join(str(i) for i in range(ROWS)))
        loading = time.monotonic()
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
        source_seconds = time.monotonic() - loading
        writer = lines.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
        writer = writer.trigger(availableNow=True)
        started = time.time()  # the clock of Spark's progress
        query = direct_to_peer(writer, peer, options).start()
        assert query.awaitTermination(120)
    progress = query.recentProgress
    assert len(progress) == MICRO_BATCHES
    seconds = [trigger["durationMs"]["triggerExecution"] / 1000 for trigger in progress]
    triggered = datetime.fromisoformat(progress[0]["timestamp"].replace("Z", "+00:00"))
    result = {
        "first_seconds": triggered.timestamp() + seconds[0] - started,
        "second_seconds": seconds[1],
        "later_seconds": statistics.median(seconds[2:]),
        "source_seconds": source_seconds,
        "warm_up_seconds": warm_up_seconds,
        "memory_mib": memory_mib(),
    }
    spark.stop()
    print(json.dumps(result))


def memory_mib() -> float:
    """Of this process, Spark's Java process and its Python workers."""
    here = psutil.Process()
    processes = [here, *here.children(recursive=True)]
    return sum(process.memory_full_info().pss for process in processes) / 2**20


def plot(figures: dict[str, list[dict[str, Any]]]) -> None:
    """Every session's first micro-batch, as dots, and their median, as a bar."""
    plt = pyplot()
    _, axes = plt.subplots(figsize=(7, 3.2))
    labels = []
    for place, (peer, done) in enumerate(figures.items()):
        points = [run["first_seconds"] for run in done]
        median, colour = statistics.median(points), COLOURS.get(peer, "tab:blue")
        axes.barh(place, median, color=colour, alpha=0.5)
        axes.plot(points, [place] * len(points), ".", color=colour)
        axes.annotate(f"{median:.1f}", (max(points), place), (6, 0), va="center",
                      textcoords="offset points")  # fmt: skip
        labels.append(peer)
        if peer == WARMED:
            before = statistics.median(run["warm_up_seconds"] for run in done)
            labels[-1] += f"\n(which takes {before:.1f} s before)"
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set(xlabel="first micro-batch of a fresh session, seconds")
    axes.margins(x=0.15)
    axes.grid(visible=True, axis="x", alpha=0.3)
    save_plot(plt, "fresh_session")


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in PEERS:
        one_session(*sys.argv[1:])
    else:
        main()
