"""What all benchmarks share: the session, the peers, and where tables and plots go."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drop_sink import DropSink
from local_session import session_builder
from spark_jars import kafka_jars

from spark_kafka_sink import foreach_batch, warm_up
from spark_kafka_sink.deadline import Deadline

_T = TypeVar("_T", int, float)
RESULTS = Path(__file__).parents[2] / "docs" / "benchmark"
SPARKS_OWN, OURS = "Spark's own sink", "this sink"
LAUNCHED = "this sink, kafka-nb-python"
FOREACH_BATCH = "foreach_batch"
FOREACH_BATCH_LAUNCHED = "foreach_batch, kafka-nb-python"
FROM_DRIVER = "foreach_batch, from the driver"
FROM_DRIVER_EXACTLY_ONCE = "from the driver, exactly-once"
WARMED = "this sink after warm_up, kafka-nb-python"
FLOOR = "Python sink that drops all"
# Starts Spark's Python workers; installed beside this Python.
KAFKA_NB_PYTHON = str(Path(sys.executable).with_name("kafka-nb-python"))
EMPTY: Mapping[str, str] = {}
AS_THEY_COME = {"kafka.compression.type": "lz4", "kafka.linger.ms": "5"}
# What docs/tuning.md recommends for Spark itself.
TUNED_SPARK = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
}
FORMATS = {
    SPARKS_OWN: "kafka",
    OURS: "kafka-nb",
    LAUNCHED: "kafka-nb",
    WARMED: "kafka-nb",
    FLOOR: "drop",
}


#: what the ways to use foreach_batch add to the options
FOREACH_BATCH_OPTIONS: Mapping[str, Mapping[str, str]] = {
    FOREACH_BATCH: EMPTY,
    FOREACH_BATCH_LAUNCHED: EMPTY,
    FROM_DRIVER: {"send.from": "driver"},
    FROM_DRIVER_EXACTLY_ONCE: {"send.from": "driver", "delivery.guarantee": "exactly-once"},
}


def session(
    conf: Mapping[str, str] = EMPTY, python: str = sys.executable, jars: str = ""
) -> SparkSession:
    """Spark on this machine, with its own defaults except for ``conf``.

    ``python`` starts its Python workers. ``jars``: instead of those of Spark's own Kafka sink.
    """
    os.environ["PYSPARK_PYTHON"] = python
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # where workers find the benchmarks
    spark = (
        session_builder("local[2]")
        .config(map=dict(conf))
        .config("spark.jars", jars or kafka_jars())
        .config("spark.driver.memory", "4g")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def run_in_process(script: str, *arguments: str) -> Any:
    """Run the script in its own process; returns the JSON that it prints last."""
    command = [sys.executable, script, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure_fresh_sessions(
    script: str, peers: Sequence[str], servers: str, rounds: int
) -> dict[str, list[Any]]:
    """The figures of ``script <peer> <servers>`` for each peer, interleaved."""
    figures: dict[str, list[Any]] = {peer: [] for peer in peers}
    for _ in range(rounds):
        for peer in peers:
            figures[peer].append(run_in_process(script, peer, servers))
            print(peer, figures[peer][-1], flush=True)
    return figures


def fresh_session(peer: str, options: Mapping[str, str]) -> tuple[SparkSession, float]:
    """A session for the peer, and the seconds that ``warm_up`` took, or 0.0 without it."""
    is_launched = peer in (LAUNCHED, FOREACH_BATCH_LAUNCHED, WARMED)
    spark = session(python=KAFKA_NB_PYTHON if is_launched else sys.executable)
    seconds = 0.0
    if peer == FLOOR:
        spark.dataSource.register(DropSink)
    if peer == WARMED:
        done = warm_up(spark, options)
        assert not done.problem, done.problem
        seconds = done.seconds
    return spark, seconds


def direct_to_peer(
    writer: DataStreamWriter, peer: str, options: Mapping[str, str]
) -> DataStreamWriter:
    """The writer of a stream, directed to the peer."""
    if peer in FOREACH_BATCH_OPTIONS:
        return writer.foreachBatch(foreach_batch({**options, **FOREACH_BATCH_OPTIONS[peer]}))
    return writer.format(FORMATS[peer]).options(**options)


def argument(place: int, default: _T) -> _T:
    """The script's argument at that place, from 1, as the default's type."""
    return type(default)(sys.argv[place]) if sys.argv[place:] else default


def create_topics(servers: str, names: Iterable[str], partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    topics = [NewTopic(name, partitions) for name in names]
    for first in range(0, len(topics), 500):
        some = topics[first : first + 500]
        for future in admin.create_topics(some).values():
            future.result(120)
        deadline = Deadline(120)
        while not _are_served(admin, some):
            if deadline.expired:
                raise TimeoutError(f"topics such as {some[0].topic} are not served")


def _are_served(admin: AdminClient, topics: Iterable[NewTopic]) -> bool:
    """Whether the broker serves every partition of the topics, in one request.

    One that is being created may accept a producer's second batch after it rejected the first, and
    then rejects the first for good: Java's idempotent producer retries it until it expires.
    """
    partitions = [TopicPartition(t.topic, n) for t in topics for n in range(t.num_partitions)]
    try:
        futures = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))
        for future in futures.values():
            future.result(10)
    except KafkaException:
        return False
    return True


def delete_topics(servers: str, names: Iterable[str]) -> None:
    """Delete topics, so that a broker's data stays small and the disk is not measured."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    for future in admin.delete_topics(list(names)).values():
        future.result(120)


def machine() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({model}), {memory_gib:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}"
    )


def write_table(name: str, markdown: str) -> None:
    """Write ``docs/benchmark/<name>.md``, with the machine below the table, and print it."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = f"{markdown}\nMachine: {machine()}.\n"
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)


def pyplot() -> Any:
    """matplotlib.pyplot, set up so that the same figures give the same file."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "spark-kafka-sink"
    from matplotlib import pyplot as plt

    return plt


def save_plot(plt: Any, name: str) -> None:
    """Write ``docs/benchmark/<name>.svg``."""
    plt.tight_layout()
    plt.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})
    plt.close()


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def spread(values: list[float], form: str = ".2f") -> str:
    """``median (lowest to highest)``."""
    median, low, high = statistics.median(values), min(values), max(values)
    return f"{median:{form}} ({low:{form}} to {high:{form}})"
