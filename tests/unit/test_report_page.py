"""The page: complete by itself, well-formed, with every plot, whatever the reports hold."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from xml.etree import ElementTree

import pytest
from report_lines import report, write

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.tools.report.history import History
from spark_kafka_sink.tools.report.page import page
from spark_kafka_sink.tools.report.plots import COLORS

SVG = "{http://www.w3.org/2000/svg}"
PLOTS = [
    "Records per second",
    "Time of a micro-batch's tasks, added up, by part",
    "Failures and dead letters",
    "Repeated produce requests",
    "Buffer of unacknowledged records",
    "Records of a micro-batch, by topic",
]
ATTACK = "<script>alert(1)</script>&\"'"
NOTHING = {
    "records": 0,
    "records_by_topic": {},
    "sent_bytes_by_topic": {},
    "tasks": 0,
    "task_ms": 0,
    "longest_task_ms": 0,
    "retried_requests": None,
    "buffer_peak_bytes": 0,
    "buffer_memory_bytes": 0,
}


def drawn(*reports, skipped=(), **keywords):
    first, *others = reports
    history = History(first, **keywords)
    for other in others:
        history.add(other)
    return page(history, "/data/reports", datetime(2026, 11, 22, tzinfo=timezone.utc), skipped)


def parsed(text):
    return ElementTree.fromstring(text)


def text_of(element):
    return " ".join("".join(element.itertext()).split())


FULL = drawn(
    *map(report, range(30)),
    report(
        30,
        outcome="failed",
        buffer_wait_ms=3_900,
        failed_records_by_topic={"orders": 3},
        dead_letters_by_topic={"": {"NULL_TOPIC": 2_000_000}},
        retried_requests=4,
        records_by_topic={f"topic-{number}": 9 - number for number in range(9)},
    ),
)


def test_every_plot_is_there_with_its_legend_and_the_times_with_their_date():
    root = parsed(FULL)
    assert [svg.get("aria-label") for svg in root.iter(f"{SVG}svg")] == PLOTS
    texts = [text_of(figure) for figure in root.iter("figure")]
    assert all("2026-11-22 08:00:" in text.replace("\n", " ") for text in texts)
    assert "waiting for room in the buffer" in texts[1]
    assert "dead letters" in texts[2]
    assert "5 other topics" in texts[5]


def test_what_takes_the_time_is_on_the_page():
    text = text_of(parsed(FULL))
    assert "all The sink itself takes 97 % of the tasks' time" in text
    assert "latest Waiting for room in the buffer takes 98 % of the tasks' time" in text


def test_the_latest_micro_batches_come_first_and_failed_ones_are_marked():
    *_, table = parsed(FULL).iter("table")
    head, *rows = table.iter("tr")
    assert len(rows) == 31
    assert rows[0].get("class") == "failed"
    assert rows[1].get("class") is None
    cells = dict(zip(map(text_of, head), map(text_of, rows[0]), strict=True))
    assert cells["ended (UTC)"] == "2026-11-22 08:01:01"
    assert (cells["micro-batch"], cells["dead letters"]) == ("30", "2,000,000")


def test_nothing_comes_from_elsewhere_and_nothing_runs():
    root = parsed(FULL)
    assert "default-src 'none'" in FULL
    assert not {element.tag.rpartition("}")[2] for element in root.iter()} & {
        "script",
        "link",
        "img",
    }
    targets = re.findall(r'(?:href|src)="([^"]*)"|url\(([^)]*)\)', FULL)
    assert {(one or other)[0] for one, other in targets} == {"#"}


def test_what_a_plot_refers_to_is_its_own():
    root = parsed(FULL)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    referred = re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"', FULL)
    assert {one or other for one, other in referred} <= set(ids)


def test_plots_have_the_pages_colours_on_light_and_dark():
    style, _, rest = FULL.partition("</style>")
    assert re.findall(r"#[0-9a-f]{6}", rest) == []
    for name, (light, dark) in COLORS.items():
        assert f"--{name}: {light};" in style
        assert f"--{name}: {dark};" in style
        assert f"var(--{name})" in FULL
    assert "prefers-color-scheme: dark" in style


@pytest.mark.parametrize(
    "reports",
    [
        [report(0)],
        [report(0, **NOTHING)],
        [report(number, **NOTHING) for number in range(5)],
        [report(0, outcome="failed", **NOTHING), report(1)],
    ],
    ids=["one", "nothing in one", "nothing in five", "a failure without figures"],
)
def test_little_or_nothing_is_drawn_too(reports):
    root = parsed(drawn(*reports))
    assert len(list(root.iter(f"{SVG}svg"))) == len(PLOTS)


def test_what_is_not_there_is_said():
    _, _, failures, repeated, _, topics = parsed(drawn(report(0, **NOTHING))).iter("figure")
    assert "no failures, no dead letters" in text_of(failures)
    assert "not known" in text_of(repeated)
    assert "no records" in text_of(topics)


def test_names_from_users_data_are_text():
    hostile = {
        "query_id": ATTACK,
        "broker_error": ATTACK,
        "outcome": ATTACK,
        "records_by_topic": {ATTACK: 3, "$x_1$": 2, "\x00": 1},
        "failed_records_by_error": {ATTACK: 1},
        "dead_letters_by_topic": {ATTACK: {ATTACK: 1}},
    }
    text = drawn(report(0, **hostile), skipped=[ATTACK])
    assert "<script" not in text
    assert text_of(parsed(text)).count(ATTACK) >= 6


def test_long_histories_are_thinned_and_the_page_says_so():
    failed = {"outcome": "failed", "failed_records_by_topic": {"orders": 1}}
    reports = [report(number, **(failed if number == 3 else {})) for number in range(40)]
    text = drawn(*reports, max_samples=10)
    assert "Each step is 4 micro-batches" in text_of(parsed(text))
    assert "no failures" not in text
    assert "Each step is a micro-batch" in text_of(parsed(drawn(*reports)))


def test_the_same_history_makes_the_same_page():
    assert drawn(report(0), report(1)) == drawn(report(0), report(1))


def test_the_command_writes_the_page(tmp_path, capsys):
    write(tmp_path, 0, 1)
    file = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--html", str(file)]) == 0
    assert f"written: {file}" in capsys.readouterr().out
    root = parsed(file.read_text(encoding="utf-8"))
    assert str(tmp_path) in text_of(root.find("body/h1"))
