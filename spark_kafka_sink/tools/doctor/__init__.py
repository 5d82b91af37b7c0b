"""Doctor: finds configuration problems before a job runs, and says how to fix them."""

from importlib import import_module

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.libraries import importing
from spark_kafka_sink.tools.doctor.result import Outcome, Result, diagnose_nothing

try:
    with importing("confluent_kafka"):
        # First, because it checks the files: the loader ends the process for one that is cut.
        import_module("spark_kafka_sink.librdkafka.client")
        from spark_kafka_sink.tools.doctor.diagnosis import diagnose
except KafkaSinkError as error:
    diagnose = diagnose_nothing(error)

__all__ = ["Outcome", "Result", "diagnose"]
