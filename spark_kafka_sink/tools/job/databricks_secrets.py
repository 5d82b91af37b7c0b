"""Reads secrets of Databricks' secret scopes."""

from __future__ import annotations


def read(scope: str, key: str) -> str:
    """The secret, by ``dbutils.secrets.get``; raises ValueError with a sentence that hides it."""
    try:
        from pyspark.dbutils import DBUtils  # type: ignore[import-not-found]
    except ImportError:
        raise ValueError(
            "${secrets:SCOPE/KEY} works only on Databricks (pyspark.dbutils is missing); write "
            "${env:NAME} or ${file:PATH} here"
        ) from None
    from pyspark.sql import SparkSession

    from spark_kafka_sink.tools.job.spark_errors import SPARK_ERRORS, reason

    try:
        # On Databricks there is a session already.
        secret: str = DBUtils(SparkSession.builder.getOrCreate()).secrets.get(scope, key)
    except SPARK_ERRORS as error:
        raise ValueError(f"Databricks does not return the secret: {reason(error)}") from None
    if not secret:
        raise ValueError(f"the secret {scope}/{key} is empty")
    return secret
