"""The former name of tools.doctor, until 0.3."""

import warnings

from spark_kafka_sink.tools.doctor import Outcome, Result, diagnose

__all__ = ["Outcome", "Result", "diagnose"]

warnings.warn(
    f"{__name__} is now called spark_kafka_sink.tools.doctor; "
    "the former name will be removed in 0.3",
    DeprecationWarning,
    stacklevel=2,
)
