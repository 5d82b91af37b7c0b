"""Result: the outcome of a check, as text for people and as JSON for programs."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass
from enum import Enum


class Outcome(str, Enum):
    """How a check ended.

    - ``PASSED``: nothing is wrong.
    - ``WARNED``: the job works, but may fail later.
    - ``FAILED``: the job cannot work.
    - ``SKIPPED``: not checked; the message says why.
    """

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """What a check says about ``subject``: a server, a topic, a command, or "" for none of these.

    ``seconds``: the duration, if the check measured it. ``blocks``: whether the checks that need
    this one are skipped.
    """

    outcome: Outcome
    message: str
    advice: str = ""
    subject: str = ""
    seconds: float | None = None
    blocks: bool = False


@dataclass(frozen=True)
class Result:
    """The outcome of one check.

    - ``name``: of the check, such as ``write_permission``.
    - ``subject``: the server, topic or command that was checked, or "".
    - ``outcome``, and the ``seconds`` that the check took.
    - ``message``: what it found out.
    - ``advice``: what to do, or "".
    """

    name: str
    subject: str
    outcome: Outcome
    seconds: float
    message: str
    advice: str


def first_line(error: Exception) -> str:
    """The error's text, without the stack traces that Spark adds."""
    return str(error).strip().partition("\n")[0]


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def passed(message: str, subject: str = "") -> Finding:
    return Finding(Outcome.PASSED, message, subject=subject)


def warned(message: str, advice: str, subject: str = "") -> Finding:
    return Finding(Outcome.WARNED, message, advice, subject)


def failed(message: str, advice: str, subject: str = "") -> Finding:
    return Finding(Outcome.FAILED, message, advice, subject, blocks=True)


def skipped(message: str, advice: str = "") -> Finding:
    """For a check that cannot be made; the checks that need it are skipped too."""
    return Finding(Outcome.SKIPPED, message, advice, blocks=True)


def not_applicable(message: str) -> Finding:
    """For a check that this job does not need; later checks still run."""
    return Finding(Outcome.SKIPPED, message)


def not_reported() -> Finding:
    """For what some clouds' brokers do not report; later checks still run."""
    return Finding(Outcome.SKIPPED, "the brokers do not report this")


def diagnose_nothing(error: Exception) -> Callable[..., Generator[Result, None, None]]:
    """``diagnose`` where the checks cannot be loaded: its first check fails, and says why."""

    def diagnose(*_arguments: object, **_named: object) -> Generator[Result, None, None]:
        advice = "Do what the message says; the other checks need it"
        yield Result("options", "", Outcome.FAILED, 0.0, str(error), advice)

    return diagnose


# --- for people and programs ----------------------------------------------------------------------

_OUTCOME_WIDTH = max(len(outcome.value) for outcome in Outcome)
_NAME_WIDTH = 20  # of the longest name of a check
_INDENT = " " * (_OUTCOME_WIDTH + _NAME_WIDTH + 13)
_WITHOUT_TERMINAL = (120, 24)


def say_text(results: Iterable[Result], say: Callable[[str], None]) -> bool:
    """Write each result as it comes, then a summary; returns whether no check failed.

    Skipped checks are listed together at the end, so that they do not hide failed ones.
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
    """``outcome  name  seconds  message``, and the advice on lines of its own."""
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
    """Write one object when all results have arrived; returns whether no check failed."""
    rows = [asdict(result) for result in results]
    ok = all(row["outcome"] is not Outcome.FAILED for row in rows)
    # is_well is the deprecated name of ok.
    say(json.dumps({"ok": ok, "is_well": ok, "results": rows}, indent=2))
    return ok
