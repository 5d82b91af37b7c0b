from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A slow machine is no failure.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Generated examples depend on no clock: few of them will do where tests are repeated.
settings.register_profile("repeated", settings.get_profile("tests"), max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))

# Spark's Python workers start in half the time of those that compile PySpark from Spark's zip.
os.environ["PYSPARK_PYTHON"] = str(Path(sys.executable).parent / "kafka-nb-python")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test where it uses the format, if this Spark has no Python data sources."""
    try:
        return (yield)
    except (Exception, pytest.fail.Exception) as error:
        from spark_kafka_sink.spark.private_api import NO_FORMAT, has_data_sources

        text = "".join(traceback.format_exception(error))
        if has_data_sources() or not ("source: kafka-nb" in text or NO_FORMAT in text):
            raise
        pytest.skip(NO_FORMAT)
