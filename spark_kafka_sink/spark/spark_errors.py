"""[driver] Errors of Spark: as one line, and whether they may be transient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from spark_kafka_sink.spark.private_api import error_condition, is_java_instance

#: what Spark raises: py4j's error stands for exceptions of Java for which PySpark has no class
SPARK_ERRORS = (PySparkException, Py4JJavaError)

_PATH_NOT_FOUND = "PATH_NOT_FOUND"
_IO = "java.io.IOException"
_NO_SUCH_FILE_SYSTEM = "org.apache.hadoop.fs.UnsupportedFileSystemException"


def reason(error: Exception) -> str:
    """The error's first line, without plan and stack; for py4j's error, that of its first cause."""
    if isinstance(error, Py4JJavaError):
        *_, cause = _causes(error)
        return str(cause.toString()).strip().partition("\n")[0]
    return str(error).strip().partition("\n")[0]


def is_transient(error: Exception) -> bool:
    """Whether storage does not answer or lacks a path, which may change on its own.

    All other errors before a query runs are permanent.
    """
    if isinstance(error, PySparkException):
        return error_condition(error) == _PATH_NOT_FOUND
    if not isinstance(error, Py4JJavaError):
        return False
    causes = list(_causes(error))
    is_known = not any(is_java_instance(cause, _NO_SUCH_FILE_SYSTEM) for cause in causes)
    return is_known and any(is_java_instance(cause, _IO) for cause in causes)


def _causes(error: Py4JJavaError) -> Iterator[Any]:
    """The exception in Java, then its cause, and so on to the first cause."""
    cause = error.java_exception
    while cause is not None:
        yield cause
        cause = cause.getCause()
