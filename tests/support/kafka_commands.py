"""Kafka's own commands, whose JAR LocalKafka lacks."""

from __future__ import annotations

import os
from pathlib import Path

from spark_kafka_sink.tools.local_kafka import class_path, java_home
from spark_kafka_sink.tools.local_servers.downloads import fetch_jars

_TOOLS = ("org.apache.kafka", "kafka-tools", "4.3.0")
_SHA256 = "b88bc6ccc520d648142515526e4042c285612ce94b032434a88e3e936e38b600"
_CLASSES = {"kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand"}


def kafka_command(script: str) -> list[str]:
    """The words that run it without a shell script."""
    name = f"{_TOOLS[1]}-{_TOOLS[2]}.jar"
    tools: Path = fetch_jars(*_TOOLS, {name: _SHA256}, transitive=False)
    jars = f"{class_path()}{os.pathsep}{tools / name}"
    return [str(java_home() / "bin" / "java"), "-cp", jars, _CLASSES[script]]
