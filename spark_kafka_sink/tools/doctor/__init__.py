"""Doctor: finds configuration problems before a job runs, and says how to fix them."""

from spark_kafka_sink.tools.doctor.diagnosis import diagnose
from spark_kafka_sink.tools.doctor.result import Outcome, Result

__all__ = ["Outcome", "Result", "diagnose"]
