"""python -m spark_kafka_sink report: what it shows, follows, and how it ends."""

from __future__ import annotations

import io
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from report_lines import line, report, write
from rich.console import Console

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.tools.report import command, terminal
from spark_kafka_sink.tools.report.history import History


def never():
    raise AssertionError("nothing is followed")


class Waits:
    """Does one thing in each wait; then Ctrl-C."""

    def __init__(self, *actions):
        self._actions = list(actions)

    def __call__(self):
        if not self._actions:
            raise KeyboardInterrupt
        self._actions.pop(0)()


def test_the_summary_names_what_takes_the_time_and_all_figures(tmp_path, capsys):
    file = write(tmp_path, *range(9))
    with file.open("ab") as stream:
        stream.write(
            line(
                9,
                outcome="failed",
                rows_wait_ms=3_900,
                failed_records_by_topic={"orders": 12},
                failed_records_by_error={"MSG_TIMED_OUT": 12},
                dead_letters_by_topic={"": {"NULL_TOPIC": 7}},
            )
        )
    assert main(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "10 micro-batches, ended 2026-11-22 08:00:01 to 2026-11-22 08:00:19 UTC" in shown
    assert "all     The sink itself takes 90 % of the tasks' time" in shown
    assert "latest  Waiting for rows from Spark takes 98 % of the tasks' time" in shown
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    assert ["records", "10,000", "100,000"] in rows
    assert ["failed records", "12 (MSG_TIMED_OUT 12)", "12 (MSG_TIMED_OUT 12)"] in rows
    assert ["dead letters", "7 (NULL_TOPIC 7)", "7 (NULL_TOPIC 7)"] in rows
    assert ["most in a task's buffer", *["16.0 MiB of 64.0 MiB (25 %)"] * 2] in rows
    assert ["orders", "100,000", "95.4 MiB", "12", "0"] in rows
    assert ["(null)", "0", "0.0 MiB", "0", "7"] in rows


def test_the_buffer_is_not_known_if_no_task_has_reported(tmp_path, capsys):
    with write(tmp_path).open("ab") as stream:
        stream.write(line(0, outcome="failed", buffer_peak_bytes=0, buffer_memory_bytes=0))
    assert main(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    assert ["most in a task's buffer", *["not known"] * 2] in rows


def test_many_topics_are_summed_up():
    console = Console(file=io.StringIO(), width=120, record=True)
    records = {f"t{number:02}": 100 - number for number in range(20)}
    console.print(
        terminal.render(History(report(records_by_topic=records, sent_bytes_by_topic={})))
    )
    shown = console.export_text()
    assert "t14" in shown
    assert "t15" not in shown
    assert "5 other topics" in shown


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([None], "batch writes"),
        (["a"], "query a"),
        (["a", "b"], "query b and 1 more"),
        (["a", "b", "c"], "query c and 2 more"),
    ],
)
def test_it_says_whose_reports_they_are(ids, words):
    first, *others = (report(query_id=query_id) for query_id in ids)
    history = History(first)
    for other in others:
        history.add(other)
    assert terminal.queries(history)[0].startswith(words)


# --- nonsense -------------------------------------------------------------------------------------


def test_a_missing_path_is_named(tmp_path, capsys):
    assert main(["report", str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}/missing: No such file or directory\n"


def test_the_checkpoint_of_a_stream_is_named_as_one(tmp_path, capsys):
    (tmp_path / "offsets").mkdir()
    assert main(["report", str(tmp_path)]) == 2
    assert "is the checkpoint of a stream; reports are in" in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, b"", b"\n\n", line()[:50]])
def test_nothing_there_is_exit_code_1(tmp_path, capsys, text):
    if text is not None:
        (tmp_path / "report-0.jsonl").write_bytes(text)
    assert main(["report", str(tmp_path)]) == 1
    assert "no reports yet; the sink writes them if the option report.path" in (
        capsys.readouterr().err
    )


def test_only_unreadable_lines_are_exit_code_2(tmp_path, capsys):
    file = tmp_path / "report-0.jsonl"
    file.write_bytes(line(version=2) * 3)
    assert main(["report", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"warning: Skipped 3 lines, first line 1 of {file}: a report of version 2; this program "
        "reads version 1: update spark-kafka-sink.\n"
        f"error: {file}: none of its lines can be read\n"
    )


def test_lines_that_can_be_read_are_shown_and_others_named(tmp_path, capsys):
    file = write(tmp_path, 0)
    file.write_bytes(file.read_bytes() + b"cut\n" + line(1))
    assert main(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "2 micro-batches" in shown.out
    assert f"Skipped 1 line, first line 2 of {file}: not JSON, or truncated." in shown.err


def test_many_kinds_of_nonsense_make_no_long_text(tmp_path, capsys):
    file = tmp_path / "report-0.jsonl"
    file.write_bytes(b"".join(line(version=number) for number in range(1, 20)))
    assert main(["report", str(file)]) == 0
    assert len(capsys.readouterr().err.splitlines()) == 6


def test_a_page_that_cannot_be_written_is_exit_code_2(tmp_path, capsys):
    write(tmp_path, 0)
    page = tmp_path / "missing" / "page.html"
    assert main(["report", str(tmp_path), "--html", str(page)]) == 2
    assert capsys.readouterr().err == f"error: {page}: No such file or directory\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/full")
def test_a_full_disk_is_named_with_the_page(tmp_path, capsys):
    write(tmp_path, 0)
    assert main(["report", str(tmp_path), "--html", "/dev/full"]) == 2
    assert capsys.readouterr().err == "error: /dev/full: No space left on device\n"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux shows pipes as links to no file")
def test_a_page_may_be_written_to_a_pipe(tmp_path):
    write(tmp_path, 0)
    readable, writable = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        page = pool.submit(Path(f"/dev/fd/{readable}").read_text)
        assert main(["report", str(tmp_path), "--html", f"/dev/fd/{writable}"]) == 0
        os.close(writable)
        assert "</html>" in page.result(10)
    os.close(readable)


def test_a_page_keeps_its_mode(tmp_path):
    write(tmp_path, 0)
    page = tmp_path / "page.html"
    page.touch(0o600)
    assert main(["report", str(tmp_path), "--html", str(page)]) == 0
    assert page.stat().st_mode & 0o777 == 0o600


def test_a_page_that_cannot_be_written_leaves_the_former_one(tmp_path, capsys, monkeypatch):
    write(tmp_path, 0)
    page = tmp_path / "page.html"
    page.write_text("served")

    def cut_off(file, text, encoding):
        with file.open("w", encoding=encoding) as stream:
            stream.write(text[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", cut_off)
        assert main(["report", str(tmp_path), "--html", str(page)]) == 2
    assert capsys.readouterr().err == f"error: {page}: No space left on device\n"
    assert page.read_text() == "served"
    assert [path.name for path in tmp_path.glob("page*")] == ["page.html"]
    assert main(["report", str(tmp_path), "--html", str(page)]) == 0
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_a_folder_that_may_not_be_read_is_exit_code_2(tmp_path, capsys, monkeypatch):
    write(tmp_path, 0)
    monkeypatch.setattr(os, "scandir", rejected)
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}: Permission denied\n"


def rejected(path):
    raise PermissionError(13, "Permission denied", str(path))


def test_without_the_libraries_it_says_what_to_install(tmp_path, capsys, monkeypatch):
    write(tmp_path, 0)
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert main(["report", str(tmp_path), "--html", "page.html"]) == 2
    for name in [
        module for module in sys.modules if module.startswith("spark_kafka_sink.tools.report")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["report", str(tmp_path)]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert ["pip install 'spark-kafka-sink[report]'" in error for error in errors] == [True, True]


# --- following ------------------------------------------------------------------------------------


def test_without_a_terminal_every_new_micro_batch_is_a_line(tmp_path, capsys):
    waits = Waits(lambda: write(tmp_path, 0), lambda: None, lambda: write(tmp_path, 1, 2))
    assert command.run(tmp_path, None, is_followed=True, wait=waits) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "no reports yet"
    assert [line.split("  ")[:3] for line in lines[1:]] == [
        [f"2026-11-22 08:00:0{2 * number + 1}", f"micro-batch {number}", "delivered"]
        for number in range(3)
    ]
    assert lines[3].endswith(
        "10,000 records  5,000/s  0 failed  0 dead letters  the sink itself: 100 %"
    )


def test_on_a_terminal_the_view_is_drawn_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    write(tmp_path, 0)
    waits = Waits(lambda: write(tmp_path, *range(1, 500)))
    assert command.run(tmp_path, None, is_followed=True, wait=waits) == 0
    shown = capsys.readouterr().out
    assert "1 micro-batch" in shown
    assert "500 micro-batches" in shown


def test_a_path_that_vanishes_ends_following(tmp_path, capsys):
    file = write(tmp_path, 0)
    assert command.run(file, None, is_followed=True, wait=Waits(file.unlink)) == 2
    assert f"error: {file}: No such file" in capsys.readouterr().err


def test_a_page_and_following_are_two_calls(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(tmp_path), "--follow", "--html", "page.html"])
    assert "not allowed with" in capsys.readouterr().err
