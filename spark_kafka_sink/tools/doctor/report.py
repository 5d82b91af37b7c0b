"""Results as text for people and as JSON for programs."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import asdict

from spark_kafka_sink.tools.doctor.diagnosis import CHECKS
from spark_kafka_sink.tools.doctor.result import Outcome, Result

_OUTCOME_WIDTH = max(len(outcome.value) for outcome in Outcome)
_NAME_WIDTH = max(len(check.name) for check in CHECKS)
_INDENT = " " * (_OUTCOME_WIDTH + _NAME_WIDTH + 13)
_WITHOUT_TERMINAL = (120, 24)


def say_text(results: Iterable[Result], say: Callable[[str], None]) -> bool:
    """Write each result as it comes, and a summary; returns whether none failed.

    Skipped checks are listed together at the end, so that they do not hide what failed.
    """
    counts = dict.fromkeys(Outcome, 0)
    skipped: dict[str, list[str]] = {}
    columns = shutil.get_terminal_size(_WITHOUT_TERMINAL).columns
    for result in results:
        counts[result.outcome] += 1
        if result.outcome is Outcome.SKIPPED and not result.advice:
            skipped.setdefault(_full_message(result), []).append(result.name)
        else:
            say(paragraph(result, columns))
    for reason, names in skipped.items():
        begin = f"{Outcome.SKIPPED.value:<{_OUTCOME_WIDTH}}  "
        say("\n".join(_wrapped(f"{reason}: {', '.join(names)}", columns, begin)))
    say(", ".join(f"{n} {outcome.value}" for outcome, n in counts.items() if n))
    return not counts[Outcome.FAILED]


def paragraph(result: Result, columns: int) -> str:
    """``outcome  name  seconds  message``, and what to do on lines of its own."""
    begin = (
        f"{result.outcome.value:<{_OUTCOME_WIDTH}}  {result.name:<{_NAME_WIDTH}}"
        f"  {result.seconds:5.2f} s  "
    )
    lines = _wrapped(_full_message(result), columns, begin)
    if result.advice:
        lines += _wrapped(result.advice, columns, f"{_INDENT}-> ")
    return "\n".join(lines)


def _full_message(result: Result) -> str:
    return f"{result.subject}: {result.message}" if result.subject else result.message


def _wrapped(text: str, columns: int, begin: str) -> list[str]:
    # Commands and paths are for copying, so they are not split.
    return textwrap.wrap(
        text,
        max(columns, len(_INDENT) + 40),
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )


def say_json(results: Iterable[Result], say: Callable[[str], None]) -> bool:
    """Write one object when all results have arrived; returns whether none failed."""
    rows = [asdict(result) for result in results]
    is_well = all(row["outcome"] is not Outcome.FAILED for row in rows)
    say(json.dumps({"is_well": is_well, "results": rows}, indent=2))
    return is_well
