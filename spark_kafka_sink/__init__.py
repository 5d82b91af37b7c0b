"""Structured-streaming sink for Apache Kafka, ``format("kafka-nb")``, in Python alone.

Importing this needs neither Spark nor librdkafka; both are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.errors import (
    BrokerUnavailable,
    BufferExhausted,
    DeadlineExceeded,
    DeliveryFailed,
    InvalidOption,
    InvalidRecord,
    InvalidSchema,
    KafkaSinkError,
    LibraryUnavailable,
    LocalKafkaError,
    LoginRefused,
    MetadataTimeout,
    ProducerClosed,
    TopicUnavailable,
    UnsupportedSaveMode,
)

if TYPE_CHECKING:
    from spark_kafka_sink.datasource import KafkaSink, foreach_batch, register
    from spark_kafka_sink.warmup import WarmUp, warm_up

__version__ = "0.1.0"

__all__ = [
    "BrokerUnavailable",
    "BufferExhausted",
    "DeadlineExceeded",
    "DeliveryFailed",
    "InvalidOption",
    "InvalidRecord",
    "InvalidSchema",
    "KafkaSink",
    "KafkaSinkError",
    "LibraryUnavailable",
    "LocalKafkaError",
    "LoginRefused",
    "MetadataTimeout",
    "ProducerClosed",
    "TopicUnavailable",
    "UnsupportedSaveMode",
    "WarmUp",
    "__version__",
    "foreach_batch",
    "register",
    "warm_up",
]


def __getattr__(name: str) -> Any:
    if name in ("KafkaSink", "foreach_batch", "register"):
        return getattr(import_module("spark_kafka_sink.datasource"), name)
    if name in ("WarmUp", "warm_up"):
        return getattr(import_module("spark_kafka_sink.warmup"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
