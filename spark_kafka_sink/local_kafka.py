"""The former name of tools.local_kafka, until 0.3."""

import warnings

from spark_kafka_sink.tools.local_kafka import LocalKafka, Security, java_home

__all__ = ["LocalKafka", "Security", "java_home"]

warnings.warn(
    f"{__name__} is now called spark_kafka_sink.tools.local_kafka; "
    "the former name will be removed in 0.3",
    DeprecationWarning,
    stacklevel=2,
)
