"""Explains how micro-batches spend their time: what their tasks did for most of it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from spark_kafka_sink.tools.report.formatting import milliseconds, share, time_range
from spark_kafka_sink.tools.report.history import COMPONENTS, History, Interval

_DOMINATES = 0.5  # of the tasks' time
_SHORT_TASK_MS = 100
_STRAGGLER = 3  # times as long as the average task
_ONE_PARTITION = 0.8  # of the records
_FEW_RECORDS = 1_000  # per micro-batch
_ONE_TOPIC = 0.8  # of the bytes
_SLOW_ROUND_TRIP_MS = 100
_OUTLIER = 2  # times as long as the median
_MOSTLY_IDLE = 0.5  # of the time


class Explanation(NamedTuple):
    """A sentence on what takes the time, and one on how to improve it; either may be empty."""

    finding: str
    advice: str

    def __str__(self) -> str:
        return " ".join(filter(None, self))


def explain(interval: Interval) -> Explanation:
    """What dominates the tasks' time in one or more micro-batches."""
    shares = interval.shares()
    if not shares:
        return Explanation("No task has reported how long it took.", "")
    finding, advice = _explain_dominant(interval, shares)
    if interval.longest_task_ms < _SHORT_TASK_MS:
        longest = milliseconds(interval.longest_task_ms)
        return Explanation(
            finding,
            f"No task took longer than {longest}, so if micro-batches are slow, the time is "
            "spent elsewhere: see durationMs in Spark's progress.",
        )
    if _has_straggler(interval):
        times = interval.delivered_longest_tasks_ms / interval.delivered_average_tasks_ms
        return Explanation(
            f"One task delays the others: it takes {times:.1f} times as long as the average. "
            + finding,
            "Its partition of the DataFrame has more rows than the others, or its machine is "
            "slower: repartition, or look at its stage in Spark's UI.",
        )
    return Explanation(finding, advice)


def dominant_component(interval: Interval) -> str:
    """The largest part and its share, in a few words; "" if no task has reported its time."""
    shares = interval.shares()
    if not shares:
        return ""
    largest = max(shares, key=lambda name: shares[name])
    return f"{COMPONENTS[largest]}: {share(shares[largest])}"


def slowest(samples: Sequence[Interval]) -> Interval | None:
    """The sample with the most task time per micro-batch, if it stands out."""
    times = [sample.task_ms / sample.micro_batches for sample in samples]
    longest = max(times)
    if longest < _OUTLIER * median(times) or not longest:
        return None
    return samples[times.index(longest)]


def summary(history: History) -> list[tuple[str, str]]:
    """Explanations by name: of all micro-batches, the slowest sample and the latest one."""
    total, latest = history.total, history.latest[-1]
    idle = idle_sentence(total)
    lines = [("all", f"{idle} While tasks ran: {explain(total)}" if idle else str(explain(total)))]
    sample = slowest(history.samples)
    if sample:
        lines.append(("slowest", f"({time_range(sample)}) {explain(sample)}"))
    return [*lines, ("latest", str(explain(latest)))]


def idle_sentence(interval: Interval) -> str:
    """A sentence, if no task ran for most of the time between the micro-batches; else ""."""
    half_ms = _MOSTLY_IDLE * interval.elapsed_ms
    # If all tasks of a micro-batch ran at once.
    idle_ms = interval.elapsed_ms - interval.longest_tasks_ms
    if interval.micro_batches < 2 or idle_ms <= half_ms:
        return ""
    if interval.idle_ms > half_ms:
        idle = share(interval.idle_ms / interval.elapsed_ms)
        how_long = f"For at least {idle} of the time no task ran"
    else:
        idle = share(idle_ms / interval.elapsed_ms)
        how_long = f"Unless tasks waited for cores, no task ran for {idle} of the time"
    return (
        f"{how_long}: Spark waited for its trigger or for rows, planned micro-batches, or was not "
        "running."
    )


def _explain_dominant(interval: Interval, shares: dict[str, float]) -> Explanation:
    kafka = shares["buffer_wait_ms"] + shares["acknowledgement_wait_ms"]
    brokers = kafka + shares["metadata_wait_ms"]
    if brokers >= _DOMINATES and interval.broker_error and not interval.records:
        return Explanation(
            f"Waiting for the brokers takes {share(brokers)} of the tasks' time, and they "
            "acknowledged no record.",
            f"Check that they run and are reachable: {interval.broker_error}",
        )
    if shares["rows_wait_ms"] >= _DOMINATES:
        return Explanation(
            f"{_component_share(shares, 'rows_wait_ms')}: for the source or the query, not for "
            "Kafka.",
            "Look at the query's stages in Spark's UI; use more partitions if cores are idle.",
        )
    if shares["metadata_wait_ms"] >= _DOMINATES:
        return _explain_metadata(interval, shares)
    if kafka >= _DOMINATES:
        return Explanation(_kafka_finding(shares, kafka), _kafka_advice(interval))
    if shares["own_ms"] >= _DOMINATES:
        return Explanation(
            f"The sink itself takes {share(shares['own_ms'])} of the tasks' time: it waits neither "
            "for Spark nor for Kafka.",
            "More cores and partitions make it faster; see docs/tuning.md for the size of Arrow "
            "batches and for compression.",
        )
    first, second = sorted(shares, key=lambda name: shares[name], reverse=True)[:2]
    return Explanation(
        f"Nothing dominates. {_component_share(shares, first)}, {COMPONENTS[second]} "
        f"{share(shares[second])}.",
        "Faster micro-batches need improvements in both.",
    )


def _explain_metadata(interval: Interval, shares: dict[str, float]) -> Explanation:
    component = _component_share(shares, "metadata_wait_ms")
    finding = f"{component}: its tasks do not have their topics' metadata yet."
    if 2 * interval.producers_created > interval.tasks:
        return Explanation(
            finding,
            f"{interval.producers_created:,} producers were created for {interval.tasks:,} tasks: "
            "call warm_up before the first micro-batch, and let Spark keep its Python workers "
            "(spark.python.worker.reuse, pauses below a minute).",
        )
    return Explanation(
        finding,
        "The brokers answer slowly, or topics are missing or new: create them beforehand, name a "
        "single one in the option topic, and run doctor to see how fast the brokers answer.",
    )


def _kafka_finding(shares: dict[str, float], kafka: float) -> str:
    if shares["buffer_wait_ms"] >= _DOMINATES:
        why = "the brokers acknowledge more slowly than rows arrive"
        return f"{_component_share(shares, 'buffer_wait_ms')}: {why}."
    if shares["acknowledgement_wait_ms"] >= _DOMINATES:
        why = "the tasks have no more rows, but the brokers have not acknowledged all records"
        return f"{_component_share(shares, 'acknowledgement_wait_ms')}: {why}."
    return (
        f"Waiting for Kafka takes {share(kafka)} of the tasks' time: "
        f"{share(shares['buffer_wait_ms'])} for room in the buffer, "
        f"{share(shares['acknowledgement_wait_ms'])} for acknowledgements at the end."
    )


def _kafka_advice(interval: Interval) -> str:
    """Advice that follows from the strongest sign of what slows the brokers down."""
    if (interval.retried_requests or 0) >= interval.micro_batches:
        why = f" ({interval.broker_error})" if interval.broker_error else ""
        return (
            f"{interval.retried_requests:,} requests had to be repeated{why}: look for lost "
            "connections, moved leaders, or partitions with too few replicas in sync."
        )
    # Adding Counters drops zeros, so there is no partition if nothing was acknowledged.
    partition, records = next(iter(interval.busiest_partitions.most_common(1)), ("", 0))
    are_many = interval.records >= _FEW_RECORDS * interval.micro_batches
    if partition and are_many and records >= _ONE_PARTITION * interval.records:
        return (
            f"{share(records / interval.records)} of the records go to the partition {partition}, "
            "which one broker writes in order: use keys with more distinct values, or none; if the "
            "topic has no other partition, add some."
        )
    hot = interval.sent_bytes_by_topic.most_common(1)
    everything = interval.sent_bytes_by_topic.total()
    if len(interval.sent_bytes_by_topic) > 1 and hot[0][1] >= _ONE_TOPIC * everything > 0:
        topic, sent_bytes = hot[0]
        return (
            f"{share(sent_bytes / everything)} of the bytes go to the topic {topic}: spread its "
            "partitions over more brokers, or add some."
        )
    if (interval.round_trip_p99_ms or 0) >= _SLOW_ROUND_TRIP_MS:
        return (
            f"The slowest broker answers in up to {milliseconds(interval.round_trip_p99_ms or 0)} "
            "(p99): look at that broker's load and at the network; more tasks hide such delays."
        )
    return (
        "Look at the brokers' load, disks and replication; compression "
        "(kafka.compression.type=lz4) helps if the disks or the network are the bottleneck."
    )


def _component_share(shares: dict[str, float], name: str) -> str:
    label = COMPONENTS[name]
    return f"{label[0].upper()}{label[1:]} takes {share(shares[name])} of the tasks' time"


def _has_straggler(interval: Interval) -> bool:
    average_ms = interval.delivered_average_tasks_ms
    return interval.delivered_longest_tasks_ms >= _STRAGGLER * average_ms > 0
