"""``python -m spark_kafka_sink``: a local Kafka to try things with."""

from __future__ import annotations

import argparse
import sys

from spark_kafka_sink.errors import LocalKafkaError
from spark_kafka_sink.local_kafka import detached


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, or 1 if it failed or nothing runs."""
    parser = argparse.ArgumentParser(prog="python -m spark_kafka_sink", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    kafka = commands.add_parser("kafka", help="a real Apache Kafka on this machine")
    actions = kafka.add_subparsers(dest="action", required=True)
    start = actions.add_parser("start", help="start it; it runs until `stop`")
    start.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    actions.add_parser("stop", help="end it")
    actions.add_parser("status", help="say where it answers")
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
