"""Each broker in turn, and one Spark session for all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import BROKERS, Broker
from idle_clients import close_idle_clients
from local_session import session_builder
from pyspark.sql import SparkSession
from topics import Topics


@pytest.fixture(scope="session", params=BROKERS, ids=lambda kind: kind.name)
def broker(request) -> Iterator[Broker]:
    # Not pytest's folder, which stays with all records.
    with tempfile.TemporaryDirectory() as folder, Broker(request.param, Path(folder)) as broker:
        yield broker


@pytest.fixture
def topics(broker: Broker) -> Iterator[Topics]:
    topics = Topics(broker.bootstrap_servers)
    yield topics
    topics.close()
    close_idle_clients()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = (
        session_builder("local[2]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # several per micro-batch, so that a task fails after it has sent rows
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
