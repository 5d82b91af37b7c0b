"""Spark Connect in local mode, for tests that run side by side: its own port is always 15002."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession


def local_connect(cores: int) -> SparkSession.Builder:
    """A builder whose server listens on a free port, as Spark does in its own tests."""
    os.environ["SPARK_TESTING"] = "1"
    return SparkSession.builder.remote(f"local[{cores}]")
