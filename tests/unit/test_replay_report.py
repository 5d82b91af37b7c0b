"""What a replay reports: a line of JSON, and a table."""

from __future__ import annotations

import io
import json
from collections import Counter
from contextlib import closing

from rich.console import Console

from spark_kafka_sink.tools.job.output import JsonLines, output_of
from spark_kafka_sink.tools.job.replay_report import ReplayReport

REPORT = ReplayReport(
    Counter(b=1, a=1_200),
    Counter({("A", "[t]"): 3}),
    Counter({("B", "t"): 2, ("A", None): 1, (None, None): 4}),
)


def test_a_report_is_one_line_of_json(capsys):
    with closing(JsonLines()) as output:
        output.sum_up(REPORT)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "replayed_by_topic": {"a": 1200, "b": 1},
        "to_replay": [{"error": "A", "topic": "[t]", "records": 3}],
        "passed_over": [
            {"error": None, "topic": None, "records": 4},
            {"error": "A", "topic": None, "records": 1},
            {"error": "B", "topic": "t", "records": 2},
        ],
    }


def test_what_is_not_known_is_null():
    line = json.loads(ReplayReport(Counter(), None, None).to_json())
    assert line == {"replayed_by_topic": {}, "to_replay": None, "passed_over": None}


def shown(report):
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    with output_of("replay", console) as output:
        output.waits_for("counting")
        output.sum_up(report)
    lines = console.file.getvalue().replace("│", " ").splitlines()
    return [line.split() for line in lines]


def test_a_terminal_gets_a_table():
    lines = shown(REPORT)
    assert ["replayed", "a", "1,200"] in lines
    assert ["still", "to", "replay", "A", "[t]", "3"] in lines
    assert ["not", "selected", "B", "t", "2"] in lines
    assert ["not", "selected", "not", "known"] in shown(ReplayReport(Counter(), None, None))


def test_a_topic_that_a_terminal_would_obey_is_shown_as_text():
    report = ReplayReport(Counter(), Counter({("A\x1b[2J", "[/x]"): 3}), None)
    assert ["still", "to", "replay", "A�[2J", "[/x]", "3"] in shown(report)
