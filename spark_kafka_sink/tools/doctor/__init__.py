"""Doctor: says before a job runs what would go wrong, and what to do about it."""

from spark_kafka_sink.tools.doctor.diagnosis import diagnose
from spark_kafka_sink.tools.doctor.result import Outcome, Result

__all__ = ["Outcome", "Result", "diagnose"]
