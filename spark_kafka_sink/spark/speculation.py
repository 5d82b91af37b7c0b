"""Warns if speculative execution is on: it duplicates records without any failure."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def warn_of_speculation(spark: SparkSession) -> None:
    """Issue a UserWarning, at our caller's caller, if the session has ``spark.speculation``.

    Does nothing if the session does not allow reading that setting.
    """
    try:
        is_on = str(spark.conf.get("spark.speculation", "false")).lower() == "true"
    except PySparkException:
        return
    if is_on:
        warnings.warn(
            "spark.speculation is true: Spark runs slow tasks a second time, and records that "
            "both attempts write are duplicated although no task failed. Start the application "
            "with spark.speculation=false",
            stacklevel=3,
        )
