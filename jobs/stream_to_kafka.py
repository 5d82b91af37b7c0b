"""Streams any source of Spark to Kafka, as configured in a file.

    spark-submit jobs/stream_to_kafka.py --config conf/local.yaml
    python jobs/stream_to_kafka.py --config conf/local.yaml

Needs ``pip install 'spark-kafka-sink[spark,jobs]'``.
"""

from __future__ import annotations

import sys

try:
    from spark_kafka_sink.libraries import importing

    with importing(extra="spark,jobs"):
        from spark_kafka_sink.tools.job.command import main
except ModuleNotFoundError as error:
    sys.exit(f"{error}: run pip install 'spark-kafka-sink[spark,jobs]' for {sys.executable}")
except Exception as error:  # noqa: BLE001 - the sink's own, which cannot be imported before
    sys.exit(f"{error} ({sys.executable})")

if __name__ == "__main__":
    sys.exit(main())
