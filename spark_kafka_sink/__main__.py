"""[driver] The command ``kafka-nb``, or ``python -m spark_kafka_sink``.

A doctor, reports, a local Kafka and a local schema registry.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from operator import attrgetter
from pathlib import Path

from spark_kafka_sink.errors import (
    InvalidConfiguration,
    KafkaSinkError,
    LibraryUnavailable,
    LocalServerError,
)
from spark_kafka_sink.libraries import importing
from spark_kafka_sink.tools.local_kafka import LocalKafka
from spark_kafka_sink.tools.local_registry import LocalRegistry
from spark_kafka_sink.tools.local_servers.server import DetachedServer


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code.

    0, or 1 if it failed, ``status`` finds nothing running, ``doctor`` finds something that fails,
    or ``report`` finds no reports; 2 if a file for ``doctor`` or ``report`` is invalid or
    unreadable.
    130 if Ctrl-C ends the command, unless it follows reports.
    """
    parser = _parser()
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        parser.print_help()
        return 2
    choice = parser.parse_args(words)
    commands = {
        "doctor": _doctor,
        "report": _report,
        "kafka": _kafka,
        "registry": _registry,
    }
    try:
        return commands[choice.command](choice)
    except (LibraryUnavailable, LocalServerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # as a shell reports it
    except BrokenPipeError:
        # Whoever reads the output has ended, as `head` does. Python would write the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _kafka(choice: argparse.Namespace) -> int:
    def start(server: DetachedServer) -> str:
        return server.start(LocalKafka(), attrgetter("bootstrap_servers"))

    return _local_server(choice, start)


def _registry(choice: argparse.Namespace) -> int:
    def start(server: DetachedServer) -> str:
        return server.start(LocalRegistry(), attrgetter("url"))

    return _local_server(choice, start)


def _local_server(choice: argparse.Namespace, start: Callable[[DetachedServer], str]) -> int:
    server = DetachedServer(choice.command)
    if choice.action == "start":
        print(start(server))
        return 0
    if choice.action == "stop":
        folder = server.stop()
        print(f"stopped; logs and data stay in {folder}" if folder else "not running")
        return 0
    address = server.status()
    print(address or "not running")
    return 0 if address else 1


def _parser() -> argparse.ArgumentParser:
    is_module = Path(sys.argv[0]).name == Path(__file__).name
    parser = argparse.ArgumentParser(
        prog="python -m spark_kafka_sink" if is_module else "kafka-nb",
        description="Checks a job before it runs, shows what a stream did, and runs a local Kafka "
        "and a local schema registry.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_doctor(commands.add_parser("doctor", help="check what a job needs, from options to Kafka"))
    _add_report(
        commands.add_parser(
            "report", help="show what a stream's micro-batches did, and what took the time"
        )
    )
    _add_actions(commands.add_parser("kafka", help="run a real Apache Kafka on this machine"))
    _add_actions(commands.add_parser("registry", help="run a schema registry on this machine"))
    return parser


def _add_actions(server: argparse.ArgumentParser) -> None:
    actions = server.add_subparsers(dest="action", required=True)
    actions.add_parser(
        "stop",
        help="stop it; its logs and data stay in its folder, but the next start begins empty",
    )
    actions.add_parser("status", help="print its address if it runs")
    actions.add_parser("start", help="start it, unless it runs already, and print its address")


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    options = parser.add_mutually_exclusive_group(required=True)
    options.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a configuration file of jobs/stream_to_kafka.py, for its sink's options",
    )
    options.add_argument(
        "--option",
        action="append",
        type=_option,
        metavar="NAME=VALUE",
        dest="options",
        help="an option of the sink; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--write-test-record",
        action="store_true",
        help="also write a record to the topic, and with exactly-once begin a transaction",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="give up after this time (default: 30)",
    )


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", type=Path, metavar="PATH", help="the folder of report.path, or one of its files"
    )
    further = parser.add_mutually_exclusive_group()
    further.add_argument("--html", type=Path, metavar="FILE", help="also write a page with plots")
    further.add_argument(
        "--follow", action="store_true", help="keep showing new micro-batches until Ctrl-C"
    )


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        # Without the text, which may hold a password.
        raise argparse.ArgumentTypeError("not of the form NAME=VALUE (its text is not shown)")
    return name, value


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _doctor(choice: argparse.Namespace) -> int:
    from spark_kafka_sink.tools.doctor import diagnose
    from spark_kafka_sink.tools.doctor.result import say_json, say_text

    try:
        options, created_topics = _options(choice)
    except (InvalidConfiguration, LibraryUnavailable) as error:
        print(error, file=sys.stderr)
        return 2
    results = diagnose(
        options,
        timeout_seconds=choice.timeout,
        write_test_record=choice.write_test_record,
        created_topics=created_topics,
    )
    say_results = say_json if choice.json else say_text
    with closing(results):
        return 0 if say_results(results, partial(print, flush=True)) else 1


def _report(choice: argparse.Namespace) -> int:
    try:
        with importing(extra="report"):
            from spark_kafka_sink.tools.report import command
    except KafkaSinkError as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    return command.run(choice.path, choice.html, choice.follow, wait=partial(time.sleep, 1.0))


def _options(choice: argparse.Namespace) -> tuple[Mapping[str, str], Mapping[str, int]]:
    """The sink's options, and the topics that the job creates; raises InvalidConfiguration."""
    if choice.config is None:
        return dict(choice.options), {}
    with importing(extra="jobs"):
        from spark_kafka_sink.tools.job.configuration import load
    configuration = load(choice.config)
    return configuration.job.sink.options, configuration.created_topics()


if __name__ == "__main__":
    sys.exit(main())
