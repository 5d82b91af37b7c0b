"""What reports cost: CPU time per row of 100 B, and the time to append one to its folder.

One process sends the same rows from memory, in turn as it is and without the clocks and the
client's statistics that reports need. Argument: rounds (default 20).
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

from common import AS_THEY_COME, create_topics, run_in_process, table, write_table
from single_process import BATCHES, ROWS_A_BATCH, batch_of, cpu_seconds, ours

from spark_kafka_sink.config import added_settings
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.config.producer_options import ClientSettings, ProducerOptions
from spark_kafka_sink.producer import producer
from spark_kafka_sink.report.delivery_report import DeliveryReport, total
from spark_kafka_sink.spark import task
from spark_kafka_sink.tools.local_kafka import LocalKafka

WITH, WITHOUT = "as it is", "without clocks and statistics"
SENDS = 10  # of BATCHES each
TASKS, APPENDED = 8, 500


def main() -> None:
    rounds = sys.argv[1] if sys.argv[1:] else "20"
    with LocalKafka(settings={"log.retention.bytes": str(2**28)}) as kafka:
        create_topics(kafka.bootstrap_servers, ["alone"], partitions=4)
        rows = run_in_process(__file__, "rows", kafka.bootstrap_servers, rounds)
    first, others = run_in_process(__file__, "append")
    medians = {kind: statistics.median(times) for kind, times in rows.items()}
    cost = 100 * (medians[WITH] / medians[WITHOUT] - 1)
    lines = [
        (f"CPU per row of 100 B, us, {WITH} / {WITHOUT}", " / ".join(map(_shown, rows.values()))),
        ("more CPU per row (the medians)", f"{cost:+.1f} %"),
        ("the first report of a worker, imports included, ms", f"{first:.1f}"),
        ("each other report, ms", _shown(others)),
    ]
    write_table("report_cost", table(("What", "Cost"), lines))


def _shown(figures: list[float]) -> str:
    low, *_, high = statistics.quantiles(figures, n=10)
    return f"{statistics.median(figures):.2f} (80 % within {low:.2f} to {high:.2f})"


def cost_of_rows(servers: str, rounds: int) -> dict[str, list[float]]:
    """CPU time per row in microseconds."""
    batches = [batch_of(100, number) for number in range(BATCHES)]
    options = {"kafka.bootstrap.servers": servers, "topic": "alone", **AS_THEY_COME}
    sends = {
        kind: ours(parse({**options, "kafka.client.id": kind.replace(" ", "-")}), batches)
        for kind in (WITH, WITHOUT)
    }
    figures: dict[str, list[float]] = {kind: [] for kind in sends}
    for number in range(rounds + 1):
        for kind in sends if number % 2 else reversed(sends):
            measure(kind == WITH)
            started = cpu_seconds()
            sends[kind](SENDS)
            used = (cpu_seconds() - started) / (SENDS * BATCHES * ROWS_A_BATCH) * 1e6
            if number:  # the first round creates the producers
                figures[kind].append(used)
    return figures


def _settings_without_statistics(options: ProducerOptions) -> ClientSettings:
    settings = added_settings.sending_settings(options)
    pairs = {**settings, "statistics.interval.ms": "0"}
    return replace(settings, pairs=tuple(pairs.items()))


_TIMED = task._timed, producer.NonBlockingProducer._timed, added_settings.sending_settings
_UNTIMED = (
    lambda batches, waited: batches,
    lambda self, wait: nullcontext(),
    _settings_without_statistics,
)


def measure(is_on: bool) -> None:
    batches, waits, settings = _TIMED if is_on else _UNTIMED
    task._timed, producer.NonBlockingProducer._timed = batches, waits
    producer.sending_settings = settings


def cost_of_appending() -> tuple[float, list[float]]:
    """Milliseconds for the first micro-batch of a worker, and for each of the others."""
    acknowledged = Counter({("orders", partition): 250 for partition in range(4)})
    of_task = DeliveryReport(Counter(orders=1000), acknowledged_records=acknowledged, tasks=1)
    times_ms = []
    with tempfile.TemporaryDirectory() as folder:
        for batch_id in range(APPENDED):
            started = time.perf_counter()
            from spark_kafka_sink.report.folder import append

            append(replace(total([of_task] * TASKS), batch_id=batch_id), folder)
            times_ms.append((time.perf_counter() - started) * 1000)
    return times_ms[0], times_ms[1:]


if __name__ == "__main__":
    if sys.argv[1:2] == ["rows"]:
        print(json.dumps(cost_of_rows(sys.argv[2], int(sys.argv[3]))))
    elif sys.argv[1:2] == ["append"]:
        print(json.dumps(cost_of_appending()))
    else:
        main()
