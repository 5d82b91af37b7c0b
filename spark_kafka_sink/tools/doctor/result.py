"""Result: one line of the diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
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
    """What a check found about ``subject``: a server, a topic, a command, or nothing in particular.

    ``seconds``: its duration, if the check measured it. ``blocks``: whether the checks that need
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
    - ``message``: what it found.
    - ``advice``: what to do about it, or "".
    """

    name: str
    subject: str
    outcome: Outcome
    seconds: float
    message: str
    advice: str


def first_line(error: Exception) -> str:
    """Its text, without the stack traces that Spark adds."""
    return str(error).strip().partition("\n")[0]


def counted(number: float, noun: str) -> str:
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


def passed(message: str, subject: str = "", advice: str = "") -> Finding:
    return Finding(Outcome.PASSED, message, advice, subject)


def warned(message: str, advice: str, subject: str = "") -> Finding:
    return Finding(Outcome.WARNED, message, advice, subject)


def failed(message: str, advice: str, subject: str = "") -> Finding:
    return Finding(Outcome.FAILED, message, advice, subject, blocks=True)


def skipped(message: str, advice: str = "") -> Finding:
    """For a check that cannot be made; those that need it are skipped too."""
    return Finding(Outcome.SKIPPED, message, advice, blocks=True)


def not_applicable(message: str) -> Finding:
    """For a check that this job does not need; later checks still run."""
    return Finding(Outcome.SKIPPED, message)


def not_reported() -> Finding:
    """For what some clouds' brokers do not report; later checks still run."""
    return Finding(Outcome.SKIPPED, "the brokers do not report this")
