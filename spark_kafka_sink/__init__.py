"""Structured Streaming sink for Apache Kafka, ``format("kafka-nb")``, without a connector JAR.

Importing this package needs neither Spark nor librdkafka; both are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    BufferExhausted,
    DeadlineExceeded,
    DeliveryFailed,
    InvalidConfiguration,
    InvalidOption,
    InvalidRecord,
    InvalidSchema,
    KafkaSinkError,
    LedgerAhead,
    LedgerLost,
    LibraryUnavailable,
    LimitReached,
    LocalServerError,
    MetadataTimeout,
    MicroBatchTooLarge,
    PartitionsChanged,
    ProducerClosed,
    RegistryRejected,
    RegistryUnavailable,
    ReplayDiffers,
    RowsIncomplete,
    SchemaIncompatible,
    SchemaMismatch,
    SchemaNotFound,
    TokenUnavailable,
    TopicUnavailable,
    TransactionFailed,
    TransactionFenced,
    TransactionTimeout,
    UnsupportedSaveMode,
    UnsupportedType,
)
from spark_kafka_sink.libraries import importing

if TYPE_CHECKING:
    from spark_kafka_sink.report.delivery_report import DeliveryReport
    from spark_kafka_sink.spark.datasource import KafkaSink, register
    from spark_kafka_sink.spark.dead_letters import restore_dead_letters
    from spark_kafka_sink.spark.foreach_batch import foreach_batch
    from spark_kafka_sink.spark.listener import KafkaSinkListener
    from spark_kafka_sink.spark.patch import patch_pyspark, unpatch_pyspark
    from spark_kafka_sink.spark.warm_up import WarmUpResult, warm_up

__version__ = "0.4.0"

__all__ = [
    "AuthenticationFailed",
    "BrokerUnavailable",
    "BufferExhausted",
    "DeadlineExceeded",
    "DeliveryFailed",
    "DeliveryReport",
    "InvalidConfiguration",
    "InvalidOption",
    "InvalidRecord",
    "InvalidSchema",
    "KafkaSink",
    "KafkaSinkError",
    "KafkaSinkListener",
    "LedgerAhead",
    "LedgerLost",
    "LibraryUnavailable",
    "LimitReached",
    "LocalServerError",
    "MetadataTimeout",
    "MicroBatchTooLarge",
    "PartitionsChanged",
    "ProducerClosed",
    "RegistryRejected",
    "RegistryUnavailable",
    "ReplayDiffers",
    "RowsIncomplete",
    "SchemaIncompatible",
    "SchemaMismatch",
    "SchemaNotFound",
    "TokenUnavailable",
    "TopicUnavailable",
    "TransactionFailed",
    "TransactionFenced",
    "TransactionTimeout",
    "UnsupportedSaveMode",
    "UnsupportedType",
    "WarmUpResult",
    "__version__",
    "foreach_batch",
    "patch_pyspark",
    "register",
    "restore_dead_letters",
    "unpatch_pyspark",
    "warm_up",
]

_LAZY = {
    "DeliveryReport": "report.delivery_report",
    "KafkaSink": "spark.datasource",
    "register": "spark.datasource",
    "restore_dead_letters": "spark.dead_letters",
    "foreach_batch": "spark.foreach_batch",
    "KafkaSinkListener": "spark.listener",
    "patch_pyspark": "spark.patch",
    "unpatch_pyspark": "spark.patch",
    "WarmUpResult": "spark.warm_up",
    "warm_up": "spark.warm_up",
}


#: former name -> present one
_RENAMED = {"RegistryRefused": "RegistryRejected"}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        import warnings

        new = _RENAMED[name]
        message = f"{name} is now called {new}; the former name will be removed in 0.5"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return globals()[new]
    if name in _LAZY:
        # Python would turn an AttributeError of the module into "cannot import name".
        with importing():
            return getattr(import_module(f"spark_kafka_sink.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
