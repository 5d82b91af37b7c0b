"""Doctor: says before a job runs what would go wrong, and what to do about it."""

from spark_kafka_sink.doctor.diagnosis import diagnose
from spark_kafka_sink.doctor.result import Outcome, Result

__all__ = ["Outcome", "Result", "diagnose"]
