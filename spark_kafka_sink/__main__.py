"""``python -m spark_kafka_sink``: starts and stops a local Kafka."""

from __future__ import annotations

import argparse
import sys

from spark_kafka_sink.errors import LocalKafkaError
from spark_kafka_sink.local_kafka import detached


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, or 1 if it failed or ``status`` finds no Kafka."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_kafka_sink", description="Starts and stops a local Kafka."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    kafka = commands.add_parser("kafka", help="a real Apache Kafka on this machine")
    actions = kafka.add_subparsers(dest="action", required=True)
    start = actions.add_parser("start", help="start it and print its address")
    start.add_argument(
        "--brokers", type=int, choices=(1, 3), default=1, help="how many brokers (default: 1)"
    )
    actions.add_parser("stop", help="stop it; its logs and data are kept")
    actions.add_parser("status", help="print its address if it runs")
    choice = parser.parse_args(arguments)
    try:
        if choice.action == "start":
            print(detached.start(choice.brokers))
            return 0
        return _stop() if choice.action == "stop" else _status()
    except LocalKafkaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _stop() -> int:
    folder = detached.stop()
    print(f"stopped; logs and data stay in {folder}" if folder else "not running")
    return 0


def _status() -> int:
    servers = detached.status()
    print(servers or "not running")
    return 0 if servers else 1


if __name__ == "__main__":
    sys.exit(main())
