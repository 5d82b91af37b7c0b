"""``jobs/replay_dead_letters.py``: sends dead letters to their original topics."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime

from spark_kafka_sink.errors import InvalidConfiguration
from spark_kafka_sink.tools.job.command import parser_of, supervised
from spark_kafka_sink.tools.job.output import Output
from spark_kafka_sink.tools.job.replay_job import load_replay
from spark_kafka_sink.tools.job.restart import INVALID
from spark_kafka_sink.tools.job.selection import Selection, moment
from spark_kafka_sink.tools.job.stop import Stop


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the replay; returns the exit code."""
    choice = _parser().parse_args(arguments)
    selection = Selection(
        frozenset(choice.errors), frozenset(choice.topics), choice.since, choice.until
    )
    try:
        replay = load_replay(
            choice.config, choice.checkpoint, selection, choice.sql, choice.overrides
        )
    except InvalidConfiguration as error:
        print(error, file=sys.stderr)  # noqa: T201
        return INVALID
    # Imported here, so that an invalid configuration is reported before PySpark is loaded.
    from spark_kafka_sink.tools.job.replay import dry_run, run

    is_dry: bool = choice.dry_run

    def act(stop: Stop, output: Output) -> int:
        return dry_run(replay, output) if is_dry else run(replay, stop, output)

    return supervised(replay.configuration.job, act, is_dry=is_dry)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "replay_dead_letters.py",
        "Sends dead letters to their original topics. The configuration is that of the stream "
        "that wrote them.",
    )
    parser.add_argument(
        "--checkpoint", required=True, metavar="FOLDER", help="keeps the progress of one selection"
    )
    for name, of in (("error", "the error (kafka-nb.error)"), ("topic", "the topic")):
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="NAME",
            dest=f"{name}s",
            help=f"selects by {of}; may be repeated",
        )
    for name, of in (("since", "from this time on"), ("until", "before this time")):
        parser.add_argument(
            f"--{name}",
            type=_moment,
            metavar="TIME",
            help=f"selects records with a timestamp {of}, such as 2026-01-31T12:00:00Z",
        )
    parser.add_argument(
        "--sql",
        metavar="QUERY",
        help="SELECT ... FROM dead_letters: the sink's columns, repaired",
    )
    return parser


def _moment(text: str) -> datetime:
    try:
        return moment(text)
    except ValueError:
        what = f"{text} is not a time such as 2026-01-31T12:00:00Z"
        raise argparse.ArgumentTypeError(what) from None
