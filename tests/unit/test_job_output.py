"""What a user sees of a job: lines of JSON, and the live view."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest
from rich.console import Console

from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.tools.job.output import JsonLines, View, open_output
from spark_kafka_sink.tools.job.reports import MicroBatch


def progress(batch_id=0, rows=10, duration_ms=1500, **fields):
    return {
        "batchId": batch_id,
        "timestamp": "2026-01-02T03:04:05.678Z",
        "durationMs": {"triggerExecution": duration_ms, "addBatch": 1},
        "numInputRows": rows,
        "processedRowsPerSecond": 6.666666,
        **fields,
    }


def report(**records):
    return DeliveryReport(
        acknowledged_records=Counter({(topic, 0): count for topic, count in records.items()}),
        sent_bytes_by_topic=Counter(a=70),
        batch_id=0,
    )


def reported(**records):
    return report(**records).to_dict()


def shown(view):
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(view.render())
    return console.export_text()


# --- JSON -----------------------------------------------------------------------------------------


def test_a_micro_batch_is_one_line_of_json(capfd):
    with closing(JsonLines()) as output:
        output.show_micro_batch(MicroBatch.from_progress(progress(), reported(b=3, a=4)))
    (line,) = capfd.readouterr().out.splitlines()
    expected = {
        "batch_id": 0,
        "started_at": "2026-01-02T03:04:05.678Z",
        "duration_ms": 1500,
        "input_rows": 10,
        "rows_per_second": 6.7,
        "records": 7,
        "sent_bytes": 70,
        "records_by_topic": {"a": 4, "b": 3},
        "failed_records_by_topic": {},
        "dead_letters_by_topic": {},
    }
    assert expected.items() <= json.loads(line).items()


def test_names_in_json_are_those_of_the_delivery_report():
    line = json.loads(MicroBatch.from_progress(progress(), reported(a=4)).to_json())
    of_report = json.loads(report(a=4).to_json())
    del of_report["ended_at"]  # now
    assert of_report.items() <= line.items()


def test_failed_records_are_counted_by_topic():
    failed = Counter({("a", 0, -192): 1, ("a", 2, -192): 2})
    known = replace(report(a=2), failed_records=failed)
    line = json.loads(MicroBatch.from_progress(progress(), known.to_dict()).to_json())
    assert (line["records_by_topic"], line["failed_records_by_topic"]) == ({"a": 2}, {"a": 3})


def test_what_is_not_known_is_null():
    line = json.loads(MicroBatch.from_progress(progress(), None).to_json())
    counts = ("records_by_topic", "failed_records_by_topic", "dead_letters_by_topic")
    for name in ("records", "sent_bytes", *counts):
        assert line[name] is None


def test_dead_letters_are_counted_by_topic_and_error(capfd):
    dead = Counter({("a", "INVALID_RECORD"): 2, ("a", "NULL_TOPIC"): 1, ("", "NULL_TOPIC"): 3})
    micro_batch = MicroBatch.from_progress(
        progress(), replace(report(a=5), dead_letters=dead).to_dict()
    )
    line = json.loads(micro_batch.to_json())
    by_topic = {"": {"NULL_TOPIC": 3}, "a": {"INVALID_RECORD": 2, "NULL_TOPIC": 1}}
    assert line["dead_letters_by_topic"] == by_topic
    view = View("job")
    view.show_micro_batch(MicroBatch.from_progress(progress(), reported(a=4)))
    assert "dead letters" not in shown(view)
    view.show_micro_batch(micro_batch)
    lines = [[cell.strip() for cell in line.split("│")] for line in shown(view).splitlines()]
    assert ["", "a", "9", "0", "3", ""] in lines
    assert ["", "(null)", "0", "0", "3", ""] in lines


@pytest.mark.parametrize("rate", [None, float("nan"), float("inf")])
def test_a_rate_that_spark_does_not_know_is_null(rate):
    line = MicroBatch.from_progress(progress(processedRowsPerSecond=rate), None).to_json()
    assert json.loads(line)["rows_per_second"] is None


def test_without_a_terminal_messages_go_to_standard_error(capfd):
    with open_output("numbers", Console(file=io.StringIO())) as output:
        output.show_state("Waiting for data to arrive")
        output.say("stopping")
    assert capfd.readouterr() == ("", "stopping\n")


def test_a_reader_of_standard_output_that_ends_does_not_end_the_job(tmp_path):
    code = """
import sys
from spark_kafka_sink.tools.job.reports import MicroBatch
from spark_kafka_sink.tools.job.output import JsonLines

output = JsonLines()
micro_batch = MicroBatch(0, "2026-01-02T03:04:05.678Z", 1, 1, None, None)
output.show_micro_batch(micro_batch)
sys.stdin.readline()
output.show_micro_batch(micro_batch)
output.show_micro_batch(micro_batch)
output.say("still here")
output.close()
"""
    job = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert json.loads(job.stdout.readline())["batch_id"] == 0
    job.stdout.close()
    job.stdin.write("go on\n")
    job.stdin.close()
    said = job.stderr.read()
    job.stderr.close()
    assert job.wait(60) == 0
    assert sorted(said.splitlines()) == [
        "standard output: Broken pipe; lines of JSON are lost from now on",
        "still here",
    ]


@pytest.mark.parametrize("messages", [subprocess.PIPE, subprocess.STDOUT])
def test_a_reader_of_standard_output_that_stops_reading_holds_up_no_job(messages, tmp_path):
    code = """
from spark_kafka_sink.tools.job import output as job_output
from spark_kafka_sink.tools.job.reports import MicroBatch
from spark_kafka_sink.tools.job.output import JsonLines

job_output._CLOSE_SECONDS = 0.5
output = JsonLines()
micro_batch = MicroBatch(0, "2026-01-02T03:04:05.678Z", 1, 1, None, None)
for _ in range(10_000):
    output.show_micro_batch(micro_batch)
output.say("still here")
output.close()
"""
    # As users start it: without this variable, Python waits for the stream when it exits.
    environment = {name: os.environ[name] for name in os.environ.keys() - {"PYTHONUNBUFFERED"}}
    job = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=messages,
        text=True,
    )
    try:
        assert job.wait(60) == 0
    finally:
        job.kill()
        out, said = job.communicate()
    assert json.loads(out.splitlines()[0])["batch_id"] == 0
    if messages == subprocess.PIPE:
        assert said.splitlines() == [
            "standard output: nobody reads it; lines of JSON are lost from now on",
            "still here",
        ]


def test_what_a_terminal_would_obey_does_not_reach_it(capfd):
    title, clear = "\x1b]0;owned\x07", "\x1b[2J"
    view = View("job")
    view.show_micro_batch(MicroBatch.from_progress(progress(), reported(**{f"a{title}{clear}": 4})))
    assert "a�]0;owned��[2J" in shown(view)
    with closing(JsonLines()) as output:
        output.say(f"the query failed: {title}\nas before")
    assert capfd.readouterr().err == "the query failed: �]0;owned�\nas before\n"
    screen = io.StringIO()
    with open_output("job", Console(file=screen, force_terminal=True, width=80)) as output:
        output.say(f"the query failed: {title}\nas before")
    assert "the query failed: �]0;owned�\nas before\n" in screen.getvalue()


def test_a_bad_rows_topic_is_no_markup():
    view = View("job")
    view.show_micro_batch(
        MicroBatch.from_progress(progress(), reported(**{"[/x]": 4, "[red]a": 2}))
    )
    text = shown(view)
    assert "[/x]" in text
    assert "[red]a" in text


# --- the live view --------------------------------------------------------------------------------


def test_before_the_first_micro_batch_the_view_says_what_it_waits_for():
    view = View("numbers")
    view.state = "warming up"
    assert shown(view).strip() == "numbers  warming up"


def test_the_view_shows_the_last_and_the_first_micro_batch_and_all_topics():
    view = View("numbers")
    view.state = "Waiting for next trigger"
    view.show_micro_batch(
        MicroBatch.from_progress(progress(0, 1_000, 4_210), reported(a=900, b=100))
    )
    view.show_micro_batch(
        MicroBatch.from_progress(
            progress(1, 2_000, 130, processedRowsPerSecond=15_384.6), reported(a=2_000)
        )
    )
    text = shown(view)
    assert "numbers  Waiting for next trigger" in text
    for words in (
        ["micro-batch", "1", "2,000 rows", "15,385 rows/s"],
        ["last 0.13 s", "first 4.21 s"],
    ):
        line = next(line for line in text.splitlines() if words[0] in line)
        assert all(word in line for word in words)
    assert "3,000 rows in all" in text
    cells = [line.replace("│", " ").split() for line in text.splitlines()]
    assert ["a", "2,900", "0"] in cells
    assert ["b", "100", "0"] in cells


def test_the_view_sums_up_topics_beyond_the_first_few():
    view = View("numbers")
    counts = {f"t{number:02}": 100 - number for number in range(20)}
    view.show_micro_batch(MicroBatch.from_progress(progress(), reported(**counts)))
    text = shown(view)
    assert "t14" in text
    assert "t15" not in text
    assert "5 other topics" in text
    assert f"{sum(100 - number for number in range(15, 20))}" in text


def test_the_view_says_that_deliveries_are_not_known_without_a_report():
    view = View("numbers")
    view.show_micro_batch(MicroBatch.from_progress(progress(), None))
    assert "delivered records: not known: no report has arrived" in shown(view)


def test_a_terminal_gets_the_view_and_messages_stay_above_it():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    with open_output("numbers", console) as output:
        output.show_state("Processing new data")
        output.show_micro_batch(MicroBatch.from_progress(progress(), reported(a=4)))
        output.say("stopping [now] at orders.yaml:100:3")
    written = screen.getvalue()
    assert "stopping [now] at orders.yaml:100:3" in written
    assert "Processing new data" in written
    assert "delivered" in written
