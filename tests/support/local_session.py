"""Sessions on this machine, of every kind, for tests that run side by side."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession


def session_builder(kind: str) -> SparkSession.Builder:
    """``kind``: "connect", the URL of a master, or "submitted" by spark-submit, which knows it."""
    if kind == "connect":
        # Its own port is always 15002; with this, it is a free one, as in Spark's own tests.
        os.environ["SPARK_TESTING"] = "1"
        builder = SparkSession.builder.remote("local[2]")
    else:
        builder = SparkSession.builder.config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        if kind != "submitted":
            builder = builder.master(kind)
    return builder.config("spark.driver.host", "127.0.0.1")
