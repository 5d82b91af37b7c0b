"""``jobs/stream_to_kafka.py``: runs a streaming job from a configuration file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from spark_kafka_sink.errors import InvalidConfiguration, KafkaSinkError, LibraryUnavailable
from spark_kafka_sink.libraries import importing
from spark_kafka_sink.tools.job.configuration import load
from spark_kafka_sink.tools.job.model import Job
from spark_kafka_sink.tools.job.output import Output, open_output
from spark_kafka_sink.tools.job.restart import DONE, FAILED, INVALID, report_error
from spark_kafka_sink.tools.job.stop import Stop, handle_signals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    choice = _parser().parse_args(arguments)
    try:
        configuration = load(choice.config, choice.overrides)
    except (InvalidConfiguration, LibraryUnavailable) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return INVALID
    is_dry: bool = choice.dry_run

    def act(stop: Stop, output: Output) -> int:
        # Imported here: an invalid configuration is reported before PySpark is loaded.
        with importing():
            from spark_kafka_sink.tools.job.run import dry_run, run
        return dry_run(configuration, output) if is_dry else run(configuration, stop, output)

    return run_supervised(configuration.job, act, is_dry=is_dry)


def run_supervised(job: Job, act: Callable[[Stop, Output], int], *, is_dry: bool) -> int:
    """Call ``act``; handles signals and reports errors. Returns the exit code."""
    stop = Stop(job.stop_timeout_seconds)
    handle_signals(stop)
    # Otherwise rich would treat a pipe as a terminal if FORCE_COLOR is set.
    console = Console(force_terminal=sys.stdout.isatty())
    with open_output(job.name, console) as output:
        try:
            return act(stop, output)
        except KafkaSinkError as error:
            return report_error(error, output)
        except KeyboardInterrupt:
            output.say("stopped before the query started; no records were written")
            return FAILED if is_dry else DONE


def _parser() -> argparse.ArgumentParser:
    return job_parser(
        "stream_to_kafka.py",
        "Runs a streaming job that writes to Kafka, from a configuration file.",
    )


def job_parser(prog: str, description: str) -> argparse.ArgumentParser:
    """The arguments that every job has."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog="Exit codes: 0 done or stopped, 1 the query failed or cannot start yet, 2 invalid "
        "configuration. SIGTERM or Ctrl-C ends the query after its micro-batch, a second one at "
        "once.",
    )
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="a YAML file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="replaces a value of the file, such as sink.options.topic=numbers; may be repeated",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything, with Spark and the brokers, but read and write no rows",
    )
    return parser
