from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from fake_clock import FakeClock
from hypothesis import HealthCheck, settings

# A slow machine is no failure.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Generated examples depend on no clock: few of them will do where tests are repeated.
settings.register_profile("repeated", settings.get_profile("tests"), max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))

# Spark's Python workers start in half the time of those that compile PySpark from Spark's zip.
os.environ["PYSPARK_PYTHON"] = str(Path(sys.executable).parent / "kafka-nb-python")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mix the files of all folders: some mostly wait, others compute. Unit tests come last."""
    folders: dict[Path, list[Path]] = {}
    for path in dict.fromkeys(item.path for item in items):
        folders.setdefault(path.parent, []).append(path)
    places = {
        path: (folder.name == "unit", number / len(paths))
        for folder, paths in folders.items()
        for number, path in enumerate(paths)
    }
    items.sort(key=lambda item: places[item.path])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without Python data sources, skip a test that needs the format, or has it as a parameter."""
    parameters = item.callspec.id.split("-") if hasattr(item, "callspec") else []
    if item.get_closest_marker("needs_format") or "format" in parameters:
        from spark_kafka_sink.spark.private_api import NO_FORMAT, has_data_sources

        if not has_data_sources():
            pytest.skip(NO_FORMAT)
