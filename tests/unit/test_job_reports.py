"""Where a job finds the sink's reports of its micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.config.option_table import REPORT_PATH
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.report.folder import append
from spark_kafka_sink.tools.job import reports
from spark_kafka_sink.tools.job.configuration import check
from spark_kafka_sink.tools.job.document import Document
from spark_kafka_sink.tools.job.reports import Reports, collected_reports

FORMAT = """\
name: numbers
source: {format: rate}
sink:
  mode: format
  options: {kafka.bootstrap.servers: "localhost:9092", topic: numbers}
checkpoint: /tmp/numbers
"""


def configuration(*overrides):
    return check(Document(FORMAT, "job.yaml", overrides), {})


def test_reports_of_foreach_batch_are_kept_until_they_are_taken():
    with collected_reports(configuration("sink.mode=foreach_batch")) as (same, reports):
        assert same.sink_options.values[REPORT_PATH] is None
        reports.keep(DeliveryReport(batch_id=3, tasks=7))
        assert reports.take(2) is None
        assert reports.take(3)["tasks"] == 7
        assert reports.take(3) is None


def test_the_format_gets_a_folder_for_its_reports_that_is_deleted_at_the_end():
    with collected_reports(configuration()) as (changed, reports):
        folder = changed.sink_options.values[REPORT_PATH]
        assert changed.job.sink.options["report.path"] == folder
        report = append(DeliveryReport(batch_id=0, tasks=7), folder)
        assert reports.take(0) == report.to_dict()
    assert not Path(folder).exists()


@pytest.mark.parametrize("name", ["report.path", "Report.Path"])
def test_the_formats_own_folder_is_read_from_now_on_and_stays(name, tmp_path):
    append(DeliveryReport(batch_id=0, tasks=1), str(tmp_path))
    with collected_reports(configuration(f"sink.options.{name}={tmp_path}")) as (_, reports):
        assert reports.take(0) is None
        append(DeliveryReport(batch_id=1, tasks=2, outcome="failed"), str(tmp_path))
        append(DeliveryReport(batch_id=1, tasks=3), str(tmp_path))
        assert reports.take(1)["tasks"] == 3
    assert list(tmp_path.iterdir())


def test_reports_of_earlier_runs_are_not_parsed(tmp_path, monkeypatch):
    """There may be millions of them."""
    append(DeliveryReport(batch_id=0), str(tmp_path))
    parsed = []
    monkeypatch.setattr(reports, "parse_report", parsed.append)
    later = Reports(tmp_path)
    line = append(DeliveryReport(batch_id=1, tasks=3), str(tmp_path)).to_json()
    assert later.take(1)["tasks"] == 3
    assert [text.decode().strip() for text in parsed] == [line]


def test_reports_elsewhere_are_not_known():
    with collected_reports(configuration("sink.options.report.path=s3://bucket/x")) as (
        same,
        reports,
    ):
        assert same.sink_options.values[REPORT_PATH] == "s3://bucket/x"
        assert reports.take(0) is None


def test_lines_that_are_no_reports_are_passed_over(tmp_path):
    reports = Reports(tmp_path)
    (tmp_path / "report-000000001.jsonl").write_text('{"batch_id": 0}\nbroken\n')
    append(DeliveryReport(batch_id=0, tasks=7), str(tmp_path))
    assert reports.take(0)["tasks"] == 7
