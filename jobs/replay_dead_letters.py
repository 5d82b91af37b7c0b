"""Sends a stream's dead letters to their original topics, repaired if necessary.

    python jobs/replay_dead_letters.py --config conf/local.yaml --checkpoint /tmp/replay

Needs ``pip install 'spark-kafka-sink[spark,jobs]'``, and the JAR of Spark's Kafka source:
``--packages org.apache.spark:spark-sql-kafka-0-10_2.13:`` with Spark's version.
"""

from __future__ import annotations

import sys

try:
    from spark_kafka_sink.libraries import importing

    with importing(extra="spark,jobs"):
        from spark_kafka_sink.tools.job.replay import main
except ModuleNotFoundError as error:
    sys.exit(f"{error}: run pip install 'spark-kafka-sink[spark,jobs]' for {sys.executable}")
except Exception as error:  # noqa: BLE001 - the sink's own, which cannot be imported before
    sys.exit(f"{error} ({sys.executable})")

if __name__ == "__main__":
    sys.exit(main())
