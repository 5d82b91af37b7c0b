"""The check of report.path: whether the driver's Python can write there."""

from __future__ import annotations

from spark_kafka_sink.bounded import call_each
from spark_kafka_sink.report.storage import local_path, try_writing
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import Finding, first_line, not_applicable, passed, warned


def report_path(context: CheckContext) -> list[Finding]:
    """A file can be written to ``report.path`` and deleted. If not, jobs still run."""
    folder = context.sink.report_path
    if folder is None:
        return [not_applicable("no option report.path")]
    (call,) = call_each(try_writing, [folder], context.deadline)
    if call.error is not None:
        return [
            warned(
                f"reports cannot be written there: {first_line(call.error)}",
                "Correct report.path, its permissions, or this process's credentials",
                folder,
            )
        ]
    place = local_path(folder)
    if place is not None and not place.is_dir():
        return [passed("it does not exist yet, and can be created", folder)]
    message = "a file was written there and deleted"
    if place is not None and not call.value:
        message += "; files there cannot be appended to, so each report becomes a new file"
    return [passed(message, folder)]
