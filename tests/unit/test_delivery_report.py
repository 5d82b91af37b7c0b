from __future__ import annotations

import json
from collections import Counter

from spark_kafka_sink.report.delivery_report import DeliveryReport


def test_only_the_topics_with_the_most_rejected_records_are_named():
    """Rows may name any number of topics that do not exist."""
    report = DeliveryReport()
    for number in range(2_000):
        report.dead_letters[f"missing-{number:04d}", "UNKNOWN_TOPIC_OR_PART"] = 1
    report.dead_letters["orders", "MSG_SIZE_TOO_LARGE"] = 7
    report.dead_letters["orders", "INVALID_TIMESTAMP"] = 1
    by_topic = report.dead_letters_by_topic()
    assert len(by_topic) == 101
    assert by_topic["orders"] == {"INVALID_TIMESTAMP": 1, "MSG_SIZE_TOO_LARGE": 7}
    assert by_topic["(other topics)"] == {"UNKNOWN_TOPIC_OR_PART": 1_901}
    assert len(report.to_json()) < 8_000


def test_json_is_one_line_that_lists_topics_in_order():
    acknowledged = Counter({("b", 0): 1, ("a", 0): 2})
    report = DeliveryReport(sent_bytes_by_topic=Counter(a=9), acknowledged_records=acknowledged)
    line = report.to_json()
    assert "\n" not in line
    assert '"records": 3, "sent_bytes": 9, "records_by_topic": {"a": 2, "b": 1}' in line


def test_json_counts_only_delivered_records_in_total_and_by_topic():
    report = DeliveryReport(
        Counter(a=3, b=1),
        failed_records=Counter({("a", 0, 7): 1}),
        acknowledged_records=Counter({("a", 0): 1, ("a", 1): 1, ("b", 0): 1}),
    )
    line = json.loads(report.to_json())
    assert line["records"] == 3
    assert line["records_by_topic"] == {"a": 2, "b": 1}
