"""[both] librdkafka's log lines -> Python's logging; of those with one cause, one in 5 s."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass

from spark_kafka_sink.deadline import Clock, Deadline

_INTERVAL_SECONDS = 5.0
_MAX_CAUSES = 100

# syslog levels, as librdkafka logs them
_LEVELS = (
    logging.CRITICAL,
    logging.CRITICAL,
    logging.CRITICAL,
    logging.ERROR,
    logging.WARNING,
    logging.INFO,
    logging.INFO,
    logging.DEBUG,
)
# Times and counts are all that differs in the lines of one cause. Brokers and addresses stay.
_TIME_OR_COUNT = re.compile(
    r"\d+(\.\d+)?(?=ms\b)"
    r"|, \d+ identical error\(s\) suppressed"
    r"|\b\d+(?= (in-flight|retry-queued|out-queue|partially-sent|request))"
    r"|(?<=timeout #)\d+"
)

_log = logging.getLogger("spark_kafka_sink.librdkafka")


@dataclass
class _Cause:
    """Lines of one cause within an interval, which begins when one is logged."""

    level: int
    #: the latest
    line: str
    end: Deadline
    left_out: int = 0


class LogLines:
    """The log lines of a client; used by one thread at a time.

    The first line of a cause is logged at once. What follows within the interval is counted, and
    its latest line is logged with their number when the interval, or the client, ends.
    ``max_level``: the highest syslog level of lines to write.
    """

    def __init__(self, max_level: int = 7, clock: Clock = time.monotonic) -> None:
        self.max_level = max_level
        self._clock = clock
        self._causes: dict[str, _Cause] = {}  # longest logged first

    def write(self, syslog_level: int, line: str) -> None:
        level = _LEVELS[min(max(syslog_level, 0), 7)]
        if level == logging.DEBUG:  # only if the user has set kafka.debug
            _log.log(level, "%s", line)
            return
        self.write_due()
        key = _TIME_OR_COUNT.sub("", line)
        cause = self._causes.get(key)
        if cause is not None:
            cause.level, cause.line = level, line
            cause.left_out += 1
            return
        if len(self._causes) == _MAX_CAUSES:
            self._end(next(iter(self._causes)))
        self._causes[key] = _Cause(level, line, self._new_end())
        _log.log(level, "%s", line)

    def write_due(self) -> None:
        """Log how many lines were left out in the intervals that have ended."""
        for key, cause in list(self._causes.items()):
            if not cause.end.expired:
                continue
            was_repeated = bool(cause.left_out)
            self._end(key)
            if was_repeated:
                self._causes[key] = _Cause(cause.level, cause.line, self._new_end())

    def close(self) -> None:
        """Log how many lines were left out so far."""
        for key in list(self._causes):
            self._end(key)

    def _end(self, key: str) -> None:
        cause = self._causes.pop(key, None)
        if cause is not None and cause.left_out:
            times = "once" if cause.left_out == 1 else f"{cause.left_out} times"
            _log.log(cause.level, "%s (repeated %s)", cause.line, times)

    def _new_end(self) -> Deadline:
        return Deadline(_INTERVAL_SECONDS, self._clock)
