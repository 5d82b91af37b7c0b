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
_PROGRAMS = 15_000
_SECONDS = 1_800
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


_GATE = "producer/batch_gate.py"
_QUEUES = "producer/topic_queues.py"
_ENGINE = "producer/engine.py"
_SENDS = "producer/sends.py"
_METADATA = "producer/topic_metadata.py"

MUTANTS = {
    # --- which records are bad -------------------------------------------------------------------
    "takes a send's only record for alone in its batch": Mutant(
        _GATE,
        "return failed.count > 1 or record not in self._alone.get(topic, ())",
        "return failed.count > 1",
    ),
    "never finds the bad record of a batch": Mutant(
        _GATE,
        "if failed.code in BATCH_ERRORS and count > 1:",
        "if False:",
    ),
    "fails all records of a batch whose bad ones are named": Mutant(
        _GATE,
        "return failed.code == ErrorCode.INVALID_DIFFERENT_RECORD",
        "return False",
    ),
    "sends again in a transaction": Mutant(
        _GATE,
        "if self._is_transactional:\n            return False",
        "if False:\n            return False",
    ),
    "never checks what was left to the client": Mutant(
        _GATE,
        "return not self.is_checked or (partitions.count > 0 and self.is_unassigned)",
        "return not self.is_checked",
    ),
    "does not wait for limits": Mutant(
        _METADATA,
        "if not (state.is_delegated or self._is_sendable(state)):",
        "if not (state.is_delegated or isinstance(state.metadata, Metadata)):",
    ),
    # --- order -----------------------------------------------------------------------------------
    "does not resend before others": Mutant(_GATE, "        self._resending.add(topic)\n", ""),
    "does not hold batches together": Mutant(
        _QUEUES,
        "if quota.use_splittable(chunk):",
        "if quota.use_splittable(chunk) and False:",
    ),
    "lets batches of a delegated topic be divided": Mutant(
        _GATE, "sendable.partitions == UNKNOWN_PARTITIONS:", "False:"
    ),
    "counts a large record as a small one": Mutant(
        _GATE, "if len(chunk) == 1:  # which", "if False:  # which"
    ),
    "sends a small topic's batches one behind the other": Mutant(
        _GATE,
        "return Quota(state, 0 if has_unreported else most, splittable, most)",
        "return Quota(state, most, splittable, most)",
    ),
    "believes that brokers accept what the client rejects": Mutant(
        _QUEUES,
        "        if rejected:\n            self._gate.on_failed(drain.topic)\n",
        "",
    ),
    "lets small resends be divided": Mutant(
        _GATE,
        "return Quota(state, 0 if has_unreported else sys.maxsize, 0, most)",
        "return Quota(state, 0 if has_unreported else sys.maxsize, _INITIAL_BYTES, most)",
    ),
    "resends behind others that are not reported": Mutant(
        _GATE,
        "return Quota(state, 0 if has_unreported else sys.maxsize, 0, most)",
        "return Quota(state, sys.maxsize, 0, most)",
    ),
    "repeats records backwards": Mutant(
        _QUEUES, "key=lambda resend: resend.order", "key=lambda resend: -resend.order[1]"
    ),
    "turns the parts of a send around": Mutant(
        _QUEUES, "self.chunks.extendleft(reversed(parts))", "self.chunks.extendleft(parts)"
    ),
    "lets a send overtake those that wait": Mutant(
        _QUEUES, "chunks.append(Chunk(", "chunks.appendleft(Chunk("
    ),
    # --- topics ----------------------------------------------------------------------------------
    "fails records of a missing topic at once": Mutant(
        _ENGINE,
        "is_sent_again = dead_letters is not None and dead_letters.accepts(send.topic, failed)",
        "is_sent_again = False",
    ),
    "sends again what may be stored": Mutant(
        _ENGINE, "if is_sent_again and not failed.possibly_persisted:", "if is_sent_again:"
    ),
    "believes an old answer that lacks a partition": Mutant(
        _METADATA, "if self._is_recent(metadata):", "if True:"
    ),
    "puts keys into other partitions": Mutant(
        "records/partitioner.py",
        "chosen = np.where(records.keys.addresses == 0, chosen, by_key)",
        "chosen = np.where(records.keys.addresses == 0, chosen, partition_count - 1 - by_key)",
    ),
    # --- accounting and memory -------------------------------------------------------------------
    "never returns memory": Mutant(
        _SENDS, "self._buffered_bytes -= self._additional_bytes(records)", "pass"
    ),
    "admits any number of bytes": Mutant(
        _SENDS, "if self._has_room(records) else None", "if True else None"
    ),
    "forgets what is unreported at the end": Mutant(
        _ENGINE, "self._on_local_failures(self.sends.outstanding())", "pass"
    ),
    "counts records that fail twice": Mutant(
        _SENDS,
        "send.failed[failed.partition, failed.code] += failed.count",
        "send.failed[failed.partition, failed.code] += 2 * failed.count",
    ),
    "loses dead letters": Mutant(
        _ENGINE,
        "            self._append(self.sends.admit_unbounded(letters), letters)\n",
        "            self.sends.admit_unbounded(letters)\n",
    ),
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
