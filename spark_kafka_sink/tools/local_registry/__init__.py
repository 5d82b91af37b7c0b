"""A real schema registry on this machine, for demos and tests."""

from spark_kafka_sink.tools.local_registry.server import LocalRegistry

__all__ = ["LocalRegistry"]
