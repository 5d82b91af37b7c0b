"""What a topic for dead letters costs, without bad records and with 1 % of them.

The same rows, with the columns value, key, topic and partition, are written to two topics: with
``on.record.error=fail``, and with ``dead-letter``. Then 1 % of the rows is bad in one of four ways:
no topic, a negative partition, a partition that the topic does not have, and no key in a compacted
topic. In one session, interleaved, in changing order. Argument: rounds (default 5).
"""

from __future__ import annotations

import time

from common import (
    AS_THEY_COME,
    argument,
    create_topics,
    delete_topics,
    session,
    spread,
    table,
    write_table,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink.tools.local_kafka import LocalKafka

FAIL, NO_BAD, ONE_PERCENT = "fail", "dead-letter, no bad rows", "dead-letter, 1 % bad rows"
LANES = (FAIL, NO_BAD, ONE_PERCENT)
ROWS, BYTES = 2_000_000, 100
PARTITIONS = 4
PLAIN, COMPACTED, DEAD_LETTERS = "plain", "compacted", "dead-letters"
BAD_EVERY = 100
BAD = {
    0: {"topic": "null"},
    1: {"partition": "-1"},
    2: {"partition": str(PARTITIONS)},
    3: {"topic": f"'{COMPACTED}'", "key": "null"},
}


def main() -> None:
    rounds = argument(1, 5)
    spark = session()
    speeds: dict[str, list[float]] = {lane: [] for lane in LANES}
    with LocalKafka() as kafka:
        for number in range(rounds + 1):
            first = number % len(LANES)
            for lane in LANES[first:] + LANES[:first]:
                speed = rows_per_second(spark, kafka.bootstrap_servers, lane)
                if number:  # the first round warms up
                    speeds[lane].append(speed)
                    print(lane, round(speed), flush=True)
    spark.stop()
    rows = []
    for lane, lane_speeds in speeds.items():
        ratios = [a / b for a, b in zip(lane_speeds, speeds[FAIL], strict=True)]
        rows.append((lane, spread([speed / 1e6 for speed in lane_speeds]), spread(ratios)))
    head = ("on.record.error", "M rows/s", "times `fail`")
    write_table("dead_letters", table(head, rows))


def rows_per_second(spark: SparkSession, servers: str, lane: str) -> float:
    create_topics(servers, [PLAIN, COMPACTED, DEAD_LETTERS], PARTITIONS)
    compact(servers, COMPACTED)
    options = {"kafka.bootstrap.servers": servers, **AS_THEY_COME}
    if lane != FAIL:
        options |= {"on.record.error": "dead-letter", "dead.letter.topic": DEAD_LETTERS}
    rows = rows_of(spark, has_bad=lane == ONE_PERCENT)
    started = time.monotonic()
    rows.write.format("kafka-nb").options(**options).mode("append").save()
    seconds = time.monotonic() - started
    delete_topics(servers, [PLAIN, COMPACTED, DEAD_LETTERS])
    return ROWS / seconds


def compact(servers: str, topic: str) -> None:
    policy = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[policy])
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    admin.incremental_alter_configs([resource])[resource].result(30)


def rows_of(spark: SparkSession, *, has_bad: bool) -> DataFrame:
    """Half of each value compresses, half does not, as in the throughput benchmark."""
    kind = f"case when id % {BAD_EVERY} = 7 then (id div {BAD_EVERY}) % {len(BAD)} end"
    usual = {
        "value": f"left(concat(sha2(string(id), 256), repeat('plain text ', 9)), {BYTES})",
        "key": "concat('key-', id % 10000)",
        "topic": f"if(id % 2 = 0, '{PLAIN}', '{COMPACTED}')",
        "partition": "cast(null as int)",
    }
    columns = []
    for name, expression in usual.items():
        cases = [f"when kind = {n} then {bad[name]}" for n, bad in BAD.items() if name in bad]
        chosen = f"case {' '.join(cases)} else {expression} end" if cases else expression
        columns.append(f"{chosen} as {name}")
    frame = spark.range(0, ROWS, numPartitions=2)
    return frame.selectExpr("id", f"{kind if has_bad else 'null'} as kind").selectExpr(*columns)


if __name__ == "__main__":
    main()
