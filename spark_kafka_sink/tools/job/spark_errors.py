"""Errors of Spark, in one line, and whether what they miss may be there later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

#: what Spark raises; an exception that PySpark has no class for stays py4j's
SPARK_ERRORS = (PySparkException, Py4JJavaError)

_PATH_NOT_FOUND = "PATH_NOT_FOUND"
_IO = "java.io.IOException"
_NO_SUCH_FILE_SYSTEM = "org.apache.hadoop.fs.UnsupportedFileSystemException"


def reason(error: Exception) -> str:
    """The first line, without plan and stack; of py4j's error, that of the cause in Java."""
    if isinstance(error, Py4JJavaError):
        *_, cause = _causes(error)
        return str(cause.toString()).strip().partition("\n")[0]
    return str(error).strip().partition("\n")[0]


def is_away(error: Exception) -> bool:
    """Whether storage did not answer or lacks a path: that may change without a new configuration.

    Everything else that Spark refuses before a query runs stays wrong.
    """
    if isinstance(error, PySparkException):
        return error.getCondition() == _PATH_NOT_FOUND
    if not isinstance(error, Py4JJavaError):
        return False
    causes = list(_causes(error))
    is_known = not any(_is(each, _NO_SUCH_FILE_SYSTEM) for each in causes)
    return is_known and any(_is(each, _IO) for each in causes)


def _causes(error: Py4JJavaError) -> Iterator[Any]:
    """The exception in Java, then what caused it, to the first cause."""
    cause = error.java_exception
    while cause is not None:
        yield cause
        cause = cause.getCause()


def _is(java_object: Any, name: str) -> bool:
    return bool(is_instance_of(SparkContext._gateway, java_object, name))  # noqa: SLF001
