"""A real Apache Kafka on this machine, for demos and tests."""

from spark_kafka_sink.config.java_home import java_home
from spark_kafka_sink.tools.local_kafka.cluster import LocalKafka
from spark_kafka_sink.tools.local_kafka.security import Security

__all__ = ["LocalKafka", "Security", "java_home"]
