"""Breaks the engine on purpose, and expects its model to notice; ``make search-mutants``.

Arguments: names of mutants (default: all). Each one is a replaced piece of code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PROGRAMS = 3_000
_SECONDS = 900
# A mutant that fails for another reason proves nothing.
_VIOLATION = re.compile(r"^AssertionError.*", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """``file``: below the package; ``old`` is there once."""

    file: str
    old: str
    new: str

    @property
    def path(self) -> Path:
        return Path("spark_kafka_sink", self.file)

    def applied(self, source: str) -> str:
        if source.count(self.old) != 1:
            raise ValueError(f"{self.file} has {source.count(self.old)} times: {self.old}")
        return source.replace(self.old, self.new)


_BAD_BATCHES = "producer/bad_batches.py"
_BUFFER = "producer/send_buffer.py"
_ENGINE = "producer/engine.py"
_DELIVERIES = "producer/deliveries.py"
_METADATA = "producer/topic_metadata.py"

MUTANTS = {
    # --- which records are bad -------------------------------------------------------------------
    "takes a send's only record for alone in its batch": Mutant(
        _BAD_BATCHES,
        "return failed.count > 1 or record not in self._alone[topic]",
        "return failed.count > 1",
    ),
    "never finds the bad record of a batch": Mutant(
        _BAD_BATCHES,
        "middle = count // 2 if failed.code in BATCH_ERRORS else 0",
        "middle = 0",
    ),
    "fails all records of a batch whose bad ones are named": Mutant(
        _BAD_BATCHES,
        "return failed.code == ErrorCode.INVALID_DIFFERENT_RECORD",
        "return False",
    ),
    "sends again in a transaction": Mutant(
        _BAD_BATCHES,
        "if self._is_transactional:\n            return False",
        "if False:\n            return False",
    ),
    "rejects records by limits of any age": Mutant(
        _BAD_BATCHES,
        "if is_by_topic and not self._topics.are_limits_recent(topic):",
        "if False:",
    ),
    "never checks what was left to the client": Mutant(
        "librdkafka/messages.py",
        "return not self.enqueued and bool(",
        "return False and bool(",
    ),
    "does not wait for limits": Mutant(
        _METADATA,
        "if isinstance(metadata, Metadata) and self._is_sendable(state):",
        "if isinstance(metadata, Metadata):",
    ),
    # --- order -----------------------------------------------------------------------------------
    "does not mute a topic": Mutant(_BAD_BATCHES, "        self._muted.add(topic)\n", ""),
    "does not hold batches together": Mutant(
        _BAD_BATCHES,
        "held.enter_context(self._client.undivided(topic, range(partitions)))",
        "pass",
    ),
    "lets batches of a delegated topic be divided": Mutant(
        _BAD_BATCHES, "== UNKNOWN_PARTITIONS:", "is None:"
    ),
    "counts a large record as a small one": Mutant(
        _BAD_BATCHES, "if len(messages) == 1:  # which", "if False:  # which"
    ),
    "sends a small topic's batches one behind the other": Mutant(
        _BAD_BATCHES, "        if has_unreported:\n            return 0, 0\n", ""
    ),
    "does not divide the rest of a request again": Mutant(
        _BAD_BATCHES,
        "if messages is None or not messages.enqueued or request.is_enqueued:",
        "if True:",
    ),
    "repeats records backwards": Mutant(
        _BUFFER, "key=lambda retry: retry.order", "key=lambda retry: -retry.order[1]"
    ),
    "turns the parts of a send around": Mutant(
        _BUFFER, "self.sends.extendleft(reversed(parts))", "self.sends.extendleft(parts)"
    ),
    "lets a send overtake those that wait": Mutant(
        _BUFFER, "if partitions is None or topic in self._queues:", "if partitions is None:"
    ),
    # --- topics ----------------------------------------------------------------------------------
    "fails records of a missing topic at once": Mutant(
        _ENGINE,
        "is_retried = queue is not None and queue.accepts(delivery.topic, failed)",
        "is_retried = False",
    ),
    "sends again what may be stored": Mutant(
        _ENGINE, "if is_retried and not failed.possibly_persisted:", "if is_retried:"
    ),
    "keeps a partition that has gone": Mutant(
        _BAD_BATCHES,
        "UNASSIGNED if failed.code in MISSING_ERRORS else failed.partition",
        "failed.partition",
    ),
    "puts keys into other partitions": Mutant(
        "records/partitioner.py",
        "chosen = np.where(records.keys.addresses == 0, chosen, by_key)",
        "chosen = np.where(records.keys.addresses == 0, chosen, partition_count - 1 - by_key)",
    ),
    # --- accounting and memory -------------------------------------------------------------------
    "never returns memory": Mutant(
        _DELIVERIES, "self._buffered_bytes -= self._additional_bytes(records)", "pass"
    ),
    "admits any number of bytes": Mutant(
        _DELIVERIES, "if not self._has_room(records):", "if False:"
    ),
    "forgets what is unreported at the end": Mutant(
        _ENGINE, "self._on_unreported_failures(list(self.deliveries.outstanding()))", "pass"
    ),
    "counts records that fail twice": Mutant(
        _DELIVERIES,
        "delivery.failed[failed.partition, failed.code] += failed.count",
        "delivery.failed[failed.partition, failed.code] += 2 * failed.count",
    ),
    "loses dead letters": Mutant(_ENGINE, "            self._buffer.buffer(request)\n", ""),
}


def main(names: list[str]) -> int:
    unnoticed = []
    for name in names or MUTANTS:
        violation = noticed(MUTANTS[name])
        print(f"{name}: {violation or 'NOT NOTICED'}", flush=True)
        if not violation:
            unnoticed.append(name)
    return len(unnoticed)


def noticed(mutant: Mutant) -> str:
    """The invariant that a copy of the package with the mutant violates; "": none."""
    with tempfile.TemporaryDirectory(prefix="engine-mutant-") as name:
        folder = Path(name)
        shutil.copytree(ROOT / "spark_kafka_sink", folder / "spark_kafka_sink")
        broken = folder / mutant.path
        broken.write_text(mutant.applied(broken.read_text(encoding="utf-8")), encoding="utf-8")
        places = [folder, ROOT / "tests/support", ROOT / "tests/search"]
        program = f"import engine_search as s; s.run_programs(1, {_PROGRAMS}, is_shortened=False)"
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    if done.returncode == 0:
        return ""
    violation = _VIOLATION.search(done.stderr)
    if violation is None:
        raise AssertionError(done.stderr)
    return violation[0][:100]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("interrupted")
