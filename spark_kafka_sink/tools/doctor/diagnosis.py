"""diagnose: runs the table of checks, each within its time limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.secret import hide
from spark_kafka_sink.threads import Call, call_all
from spark_kafka_sink.tools.doctor import (
    connectivity,
    exactly_once,
    schema_checks,
    topic,
    workers,
    writing,
)
from spark_kafka_sink.tools.doctor.brokers import RequestRejected
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import Finding, Result, failed, skipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_MORE_TIME = "Raise --timeout"
_RESERVE_SECONDS = 0.2  # so that a check reports its own timeout, which says more than ours
_MIN_SECRET = 4  # hiding a shorter one would show where it is


@dataclass(frozen=True)
class Check:
    """One entry of the table; its name is that of its function.

    It is skipped if one of the checks that it ``needs`` failed. ``share``: its time limit, as a
    fraction of the whole time. A check that exceeds it fails.
    """

    run: Callable[[CheckContext], list[Finding]]
    needs: tuple[str, ...] = ()
    share: float = 1 / 6

    @property
    def name(self) -> str:
        return self.run.__name__


#: in the order in which they run, the commonest mistakes first
CHECKS = (
    Check(connectivity.options, share=1 / 3),
    Check(connectivity.librdkafka),
    Check(connectivity.report_path, ("options",)),
    Check(schema_checks.columns, ("options",)),
    Check(schema_checks.schema_registry, ("columns",)),
    Check(workers.spark_python),
    Check(workers.spark_packages, ("spark_python",), share=1 / 3),
    Check(connectivity.bootstrap_servers, ("options",)),
    Check(connectivity.tls, ("bootstrap_servers",)),
    Check(connectivity.kerberos_ticket, ("options",)),
    Check(connectivity.login, ("tls", "kerberos_ticket"), share=1 / 3),
    Check(connectivity.broker_versions, ("login",)),
    Check(connectivity.advertised_listeners, ("login",)),
    Check(connectivity.cluster, ("advertised_listeners",)),
    Check(topic.topic, ("cluster",)),
    Check(topic.topic_settings, ("topic",)),
    Check(topic.in_sync_replicas, ("topic_settings",)),
    Check(topic.write_permission, ("topic",)),
    Check(topic.idempotent_write, ("cluster", "broker_versions")),
    Check(topic.record_format, ("topic_settings", "broker_versions")),
    Check(topic.record_size, ("topic_settings",)),
    Check(topic.dead_letter_topic, ("cluster",)),
    Check(exactly_once.ledger_topic, ("cluster",)),
    Check(exactly_once.ledger_groups, ("cluster",)),
    Check(exactly_once.ledger, ("ledger_topic", "ledger_groups")),
    Check(exactly_once.broker_settings, ("cluster",)),
    Check(exactly_once.transaction_timeout, ("broker_settings",)),
    Check(exactly_once.coordinators, ("cluster",)),
    Check(writing.test_record, ("topic",), share=1 / 3),
    Check(writing.transaction, ("ledger_topic", "ledger_groups"), share=1 / 3),
    # Last, because busy executors may take all the time.
    Check(workers.executors, ("spark_packages",), share=1.0),
)


def diagnose(
    options: Mapping[str, object],
    *,
    timeout_seconds: float = 30.0,
    write_test_record: bool = False,
    spark: SparkSession | None = None,
    created_topics: Mapping[str, int] | None = None,
    schema: StructType | None = None,
) -> Generator[Result, None, None]:
    """Check everything that a job with the sink's ``options`` needs; yields results as they come.

    Changes nothing in Kafka, unless ``write_test_record``: then it writes one record to the option
    ``topic``, and with exactly-once commits a transaction under an id of its own, without a record.
    In ``report.path`` it writes a file and deletes it.

    - ``spark``: a session on this machine, whose settings it also checks.
    - ``created_topics``: topics that the job creates if missing, and how many partitions they get.
    - ``schema``: of the DataFrame to write, to check its columns, and their schemas in a registry.

    Ends about ``timeout_seconds`` after you request the first result: what has not run by then is
    skipped. Raises only ValueError, for a negative timeout. No result contains a secret.
    """
    deadline = Deadline(timeout_seconds)
    context = CheckContext(
        options,
        write_test_record,
        spark,
        deadline,
        created_topics=created_topics or {},
        schema=schema,
    )
    blocked: dict[str, str] = {}
    try:
        for check in CHECKS:
            obstacle = next((name for name in check.needs if name in blocked), None)
            if obstacle is not None:
                findings = [skipped(f"needs {blocked[obstacle]}")]
                blocked[check.name] = blocked[obstacle]
            elif deadline.expired:
                findings = [skipped(f"no time left: {timeout_seconds:g} s have passed", _MORE_TIME)]
                blocked[check.name] = check.name
            else:
                findings = _findings(check, context, deadline.slice(check.share * timeout_seconds))
                if any(finding.blocks for finding in findings):
                    blocked[check.name] = check.name
            for finding in findings:
                yield _result(check, finding, context)
    finally:
        context.close()


def _findings(check: Check, context: CheckContext, seconds: float) -> list[Finding]:
    context.deadline = Deadline(max(0.0, seconds - _RESERVE_SECONDS))
    (call,) = call_all(check.run, [context], Deadline(seconds))
    findings = call.value
    if findings is None:
        findings = [_unexpected_error(call)]
    return [
        finding
        if finding.seconds is not None
        else dataclasses.replace(finding, seconds=call.seconds)
        for finding in findings
    ]


def _unexpected_error(call: Call[list[Finding]]) -> Finding:
    error = call.error
    if isinstance(error, TimeoutError):
        return failed(
            f"no answer after {call.seconds:.1f} s",
            "Fix what failed above; raise --timeout if everything is just slow",
        )
    if isinstance(error, RequestRejected):
        return failed(str(error), "Look up this broker error, or raise --timeout")
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, KafkaSinkError):
        return failed(text, "Do what the message says")
    return failed(text, "Please report this as a bug in doctor")


def _result(check: Check, finding: Finding, context: CheckContext) -> Result:
    return Result(
        name=check.name,
        subject=finding.subject,
        outcome=finding.outcome,
        seconds=round(finding.seconds or 0.0, 3),
        message=_hide_secrets(finding.message, context),
        advice=_hide_secrets(finding.advice, context),
    )


def _hide_secrets(text: str, context: CheckContext) -> str:
    """``text``, which may quote a library, without the values of secret settings."""
    return hide(text, (value for value in context.secrets() if len(value) >= _MIN_SECRET))
