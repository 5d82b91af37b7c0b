"""What notebooks show of reports."""

from __future__ import annotations

import json
import re
from collections import Counter
from xml.etree import ElementTree

import pytest
from listener_events import MadeUpReport, failed_report

from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.report.html import report_html
from spark_kafka_sink.report.notebook import Highlighted, table


def html(report):
    return report_html(json.loads(report.to_json()))


def cells(markup):
    """The text of each row's cells; fails if the markup is not well-formed."""
    rows = ElementTree.fromstring(markup).iter("tr")
    return [["".join(cell.itertext()) for cell in row] for row in rows]


def test_a_delivery_report_shows_what_it_delivered_by_topic():
    report = DeliveryReport(acknowledged_records=Counter({("a", 0): 1200, ("b", 0): 3}))
    found = cells(report._repr_html_())
    assert ["a", "1,200"] in [row[:2] for row in found]
    assert ["b", "3"] in [row[:2] for row in found]


def test_a_report_shows_where_the_time_went():
    found = cells(html(MadeUpReport()))
    assert ["a", "4", "50", "0", "0"] in found
    assert ["of all tasks' time: waiting for room in the buffer, ms", "30"] in found
    assert ["round trip to the slowest broker, p99, ms", "4.00"] in found


def test_what_is_not_known_is_left_out_of_a_report():
    markup = html(MadeUpReport(round_trip_p50_ms=None, round_trip_p99_ms=None))
    assert "round trip" not in markup


@pytest.mark.parametrize(
    ("report", "is_highlighted"), [(MadeUpReport(), False), (failed_report(), True)]
)
def test_only_failures_are_emphasised(report, is_highlighted):
    assert ("#e5484d" in html(report)) is is_highlighted


def test_text_of_others_is_escaped():
    bad = "<script>alert(1)</script>"
    report = MadeUpReport(
        records_by_topic={bad: 1}, dead_letters_by_topic={"": {"E": 2}}, broker_error=bad
    )
    markup = html(report)
    assert bad not in markup
    assert markup.count("&lt;script&gt;") == 2
    assert ["(null)", "0", "–", "0", "2"] in cells(markup)


def test_a_report_of_very_many_topics_stays_short():
    many = {f"t{number}": 1 for number in range(1000)}
    markup = html(MadeUpReport(records_by_topic=many, sent_bytes_by_topic=many))
    assert len(cells(markup)) < 100
    assert "and 950 other topics" in markup


def test_colours_suit_light_and_dark_backgrounds():
    """Only the one red is ours; everything else is the notebook's."""
    markup = html(failed_report())
    colours = set(re.findall(r"(?<!-)\b(?:color|background):([^;\"]+)", markup))
    assert colours <= {"inherit", "transparent", "#e5484d"}
    for background in ("#ffffff", "#111111"):
        assert contrast("#e5484d", background) >= 3  # WCAG, for bold text


def contrast(one, other):
    """The contrast ratio of WCAG 2."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_numbers_are_grouped_and_aligned_and_unknown_ones_are_a_dash():
    markup = table(["n"], [[1234567], [None], [Highlighted(0)], [2.5]])
    assert cells(markup)[1:] == [["1,234,567"], ["–"], ["0"], ["2.50"]]
    assert markup.count("text-align:right") == 4  # the heading too
