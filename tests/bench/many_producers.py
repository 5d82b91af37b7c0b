"""100 producers of the sink start at once against three brokers: times, requests, what breaks.

Each is a process, forked as Spark's daemon forks the workers of an executor (crowd.py), and runs
one task: a row for each of three partitions, which have their leaders on three brokers. All share
this machine's cores with the brokers. Requests are counted in runs of their own (request_log.py),
because the log takes time.
Arguments: number of producers (default 100), and further numbers for some of the cases (default
50 200). With exactly-once, each has four clients, which leave little of two cores for the brokers.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from common import create_topics, table, write_table
from crowd import PARTITIONS, QUERY, Crowd, Done, Work
from kafka.admin import ConfigResourceType
from local_cluster import LocalCluster
from request_log import (
    NODES,
    Requests,
    counted,
    cpu_seconds,
    full_listen_queues,
    open_connections,
    set_on_brokers,
)

from spark_kafka_sink.config.options import SinkOptions, parse
from spark_kafka_sink.spark.micro_batch import write_batch_marker

TOPIC = "many-producers"
CLIENTS = "crowd-"
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
FIRST, LATER = "first micro-batch", "a later one"
#: of workers that have run a task, of the same Spark partition or of another one
STEADY, MOVED = "in the same workers", "in the same workers, other partitions"
#: of a listener, per second
RATES = (20, 5)
BACKLOG, LONG_BACKLOG = "socket.listen.backlog.size", 1000  # 50 by default
NO_RATE = 2**31 - 1
ATTEMPTS = 4  # as with Spark's spark.task.maxFailures
ROWS_AFTER_SECONDS = 20.0
# As brokers have by default, so that all three coordinate transactions and groups.
SETTINGS = {
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
}


PAGE = """\
Seconds from the start, or from the rows if they come later, to the first acknowledged record of the
fastest, the median and the slowest producer. All producers start at the same moment. They and the
three brokers share {cores} cores.

{times}
The same for {producers} producers, if each broker's listener accepts only so many connections per
second (`max.connection.creation.rate`).

{limited}
Requests of {producers} producers: the mean of a producer, the most of one, and all. They were
counted in other runs, because the brokers' log of requests slows brokers down.

{requests}"""


@dataclass(frozen=True)
class Run:
    """The tasks of one micro-batch, all at once.

    ``connections``: that the producers hold at the end, for each broker.
    """

    case: str
    done: Sequence[Done]
    broker_cpu_seconds: float
    full_listen_queues: int
    connections: Sequence[int]
    requests: Requests | None
    rows_after: float = 0.0

    @property
    def failures(self) -> Counter[str]:
        return Counter(task.error for task in self.done if task.error)


class Cluster:
    """Three brokers, and crowds of producers that start against them."""

    def __init__(self, kafka: LocalCluster) -> None:
        self._kafka = kafka
        create_topics(kafka.bootstrap_servers, [TOPIC], partitions=PARTITIONS)

    def warm_up(self) -> None:
        """Brokers make their own topics, and Java compiles what it runs often."""
        for _ in range(3):
            self.write_at_least_once(20)
            list(self.write_exactly_once(20))

    def write_at_least_once(self, producers: int, *, by_column: bool = False, **run: object) -> Run:
        options = self._options(producers, by_column=by_column)
        return self._run(_name(AT_LEAST_ONCE, by_column), options, by_column=by_column, **run)

    def write_exactly_once(
        self, producers: int, *, by_column: bool = False, is_counted: bool = False
    ) -> Iterator[Run]:
        """The first micro-batch of a query, then one that finds its ledger; all workers are new."""
        options = self._options(producers, self._exactly_once(producers), by_column=by_column)
        name = _name(EXACTLY_ONCE, by_column)
        both = {"by_column": by_column, "is_counted": is_counted}
        run = self._run(f"{name}, {FIRST}", options, **both)
        yield run
        # Spark would repeat those that failed; here all are repeated, and the others send nothing.
        # Where none succeeds, the next attempt finds what this one did.
        for _ in range(ATTEMPTS - 1):
            if run.failures.total() in (0, producers):
                break
            run = self._run(f"{name}, {FIRST}, repeated", options, by_column=by_column)
        if run.failures:
            return  # the next micro-batch would not find what these had to commit
        write_batch_marker(options[0], QUERY, 0, producers)
        yield self._run(f"{name}, {LATER}", options, batch_id=1, **both)

    def steady(self, producers: int) -> Iterator[Run]:
        """Counted: the third micro-batch of workers that stay, as Spark's do."""
        for case, shift in ((STEADY, 0), (MOVED, 1)):
            options = self._options(producers, self._exactly_once(producers), by_column=False)
            with Crowd(Work(options, range(3), shift)) as crowd:
                for batch_id in range(2):
                    failures = [task.text for task in crowd.run() if task.error]
                    assert not failures, failures[0]
                    write_batch_marker(options[0], QUERY, batch_id, producers)
                yield self._measured(f"{EXACTLY_ONCE}, {case}", crowd, is_counted=True)

    @staticmethod
    def _exactly_once(producers: int) -> Mapping[str, str]:
        """The settings of a new query."""
        return {
            "delivery.guarantee": EXACTLY_ONCE,
            "exactly.once.partitions": str(producers),
            "exactly.once.ledger.topic": TOPIC,
            "transactional.id.prefix": f"{QUERY}-{time.monotonic_ns()}",
        }

    @contextmanager
    def limited(self, connections_a_second: int) -> Iterator[None]:
        """Inside the block, each broker accepts no more connections per second, in the mean."""
        # The setting without a listener's name does not concern the listener of the brokers
        # themselves, which here is the clients' too.
        name = "listener.name.plaintext.max.connection.creation.rate"
        set_on_brokers(self._kafka, ConfigResourceType.BROKER, {name: str(connections_a_second)})
        try:
            yield
        finally:
            set_on_brokers(self._kafka, ConfigResourceType.BROKER, {name: str(NO_RATE)})

    def _options(
        self, producers: int, settings: Mapping[str, str] | None = None, *, by_column: bool
    ) -> list[SinkOptions]:
        options = {
            "kafka.bootstrap.servers": self._kafka.bootstrap_servers,
            **({} if by_column else {"topic": TOPIC}),
            **(settings or {}),
        }
        return [
            parse({**options, "kafka.client.id": f"{CLIENTS}{number}"})
            for number in range(producers)
        ]

    def _run(
        self,
        case: str,
        options: Sequence[SinkOptions],
        *,
        batch_id: int = 0,
        by_column: bool = False,
        rows_after: float = 0.0,
        is_counted: bool = False,
    ) -> Run:
        topic = TOPIC if by_column else ""
        work = Work(options, [batch_id], topic=topic, rows_after=rows_after)
        with Crowd(work) as crowd:
            return self._measured(case, crowd, rows_after=rows_after, is_counted=is_counted)

    def _measured(
        self, case: str, crowd: Crowd, *, rows_after: float = 0.0, is_counted: bool = False
    ) -> Run:
        before = open_connections(self._kafka)
        cpu, full = cpu_seconds(self._kafka), full_listen_queues()
        with counted(self._kafka, CLIENTS) if is_counted else nullcontext() as requests:
            done = crowd.run()
            cpu = cpu_seconds(self._kafka) - cpu
            full = full_listen_queues() - full
        after = open_connections(self._kafka)
        held = [b - a for a, b in zip(before, after, strict=True)]
        run = Run(case, done, cpu, full, held, requests, rows_after)
        load = ", ".join(f"{average:.0f}" for average in os.getloadavg())
        print(*times_of(run), *error_texts(run), f"load {load}", sep=" | ", flush=True)
        return run


def _name(guarantee: str, by_column: bool) -> str:
    return f"{guarantee}, topics from the column" if by_column else guarantee


def main() -> None:
    producers, *others = [int(number) for number in sys.argv[1:]] or [100, 50, 200]
    with LocalCluster(3, SETTINGS) as kafka:
        cluster = Cluster(kafka)
        cluster.warm_up()
        timed = timed_runs(cluster, producers, others)
        limited = limited_runs(cluster, producers)
        log = counted_runs(cluster, producers)
    with LocalCluster(3, {**SETTINGS, BACKLOG: str(LONG_BACKLOG)}) as kafka:
        cluster = Cluster(kafka)
        cluster.warm_up()
        timed += [
            _renamed(run, f"{run.case}, {BACKLOG}={LONG_BACKLOG}")
            for run in (
                cluster.write_at_least_once(producers),
                *cluster.write_exactly_once(producers),
            )
        ]
    write_table(
        "many_producers",
        PAGE.format(
            producers=producers,
            cores=os.cpu_count(),
            times=table(TIMES_HEAD, map(times_of, timed)),
            limited=table(TIMES_HEAD, map(times_of, limited)),
            requests=requests_table(log),
        ),
    )


def timed_runs(cluster: Cluster, producers: int, others: Sequence[int]) -> list[Run]:
    runs = [
        cluster.write_at_least_once(producers),
        cluster.write_at_least_once(producers, by_column=True),
        run_with_late_rows(cluster, producers),
        *cluster.write_exactly_once(producers),
        *cluster.write_exactly_once(producers, by_column=True),
    ]
    for number in others:
        runs += [cluster.write_at_least_once(number), *cluster.write_exactly_once(number)]
    return runs


def run_with_late_rows(cluster: Cluster, producers: int) -> Run:
    """The prefetch has ended when the rows come."""
    run = cluster.write_at_least_once(producers, rows_after=ROWS_AFTER_SECONDS)
    return _renamed(run, f"{AT_LEAST_ONCE}, rows {ROWS_AFTER_SECONDS:.0f} s after the start")


def limited_runs(cluster: Cluster, producers: int) -> list[Run]:
    runs: list[Run] = []
    for rate in RATES:
        with cluster.limited(rate):
            runs.append(
                _renamed(cluster.write_at_least_once(producers), f"{AT_LEAST_ONCE}, {rate}/s")
            )
        with cluster.limited(rate):
            once = cluster.write_exactly_once(producers)
            runs += [_renamed(run, f"{run.case}, {rate}/s") for run in once]
    return runs


def counted_runs(cluster: Cluster, producers: int) -> list[Run]:
    return [
        cluster.write_at_least_once(producers, is_counted=True),
        cluster.write_at_least_once(producers, by_column=True, is_counted=True),
        *cluster.write_exactly_once(producers, is_counted=True),
        *cluster.steady(producers),
    ]


def _renamed(run: Run, case: str) -> Run:
    return replace(run, case=case)


TIMES_HEAD = (
    "",
    "producers",
    "fastest, s",
    "median",
    "slowest",
    "all tasks ended",
    "failures",
    "CPU of a producer, s",
    "CPU of the brokers, s",
    "cores busy with both",
    "a worker's own MiB, at most",
    "connections at the end, per broker",
    "refused: listen queue full",
)


def times_of(run: Run) -> tuple[object, ...]:
    done = run.done
    first = [task.first_acknowledged for task in done if task.first_acknowledged is not None]
    ended = max(task.ended for task in done)
    clients = sum(task.cpu_seconds for task in done)
    failures = ", ".join(f"{count} {name}" for name, count in run.failures.items())
    return (
        run.case,
        len(done),
        *(f"{summary(first):.1f}" if first else "-" for summary in (min, statistics.median, max)),
        f"{ended:.1f}",
        failures or 0,
        f"{clients / len(done):.2f}",
        f"{run.broker_cpu_seconds:.0f}",
        f"{(clients + run.broker_cpu_seconds) / (run.rows_after + ended):.1f}",
        f"{max(task.private_mib for task in done):.0f}",
        statistics.median(run.connections),
        run.full_listen_queues,
    )


def error_texts(run: Run) -> list[str]:
    """One text of each error."""
    return list(
        {task.error: f"{task.error}: {task.text}" for task in run.done if task.error}.values()
    )


def requests_table(runs: Sequence[Run]) -> str:
    kinds = sorted({kind for run in runs for kind in run.requests.kinds})
    rows = [(kind, *(_requests(run, kind) for run in runs)) for kind in kinds]
    rows += [
        ("all", *(f"{sum(map(sum, _all(run))):,}" for run in runs)),
        ("connections to a broker, all", *(_connections(run) for run in runs)),
        ("the slowest of all answers, s", *(f"{_slowest(run):.1f}" for run in runs)),
    ]
    return table(("", *(run.case for run in runs)), rows)


def _requests(run: Run, kind: str) -> str:
    by_client = run.requests.counts(kind)
    return (
        f"{sum(by_client) / len(run.done):.1f}, {max(by_client)}, {sum(by_client):,}"
        if sum(by_client)
        else "0"
    )


def _all(run: Run) -> list[list[int]]:
    return [run.requests.counts(kind) for kind in run.requests.kinds]


def _connections(run: Run) -> str:
    return f"{statistics.mean(len(run.requests.connections[node]) for node in NODES):,.0f}"


def _slowest(run: Run) -> float:
    return max(map(max, run.requests.milliseconds.values())) / 1000


if __name__ == "__main__":
    main()
