"""[both] The ledger: its contents for a micro-batch, and what a task does then. Sends nothing.

Each Spark partition has a consumer group ``<prefix>.<partition>``, and three belong to all:
``<prefix>.driver``, ``<prefix>.layout``, and ``<prefix>.claim``, which only coordinates. The offset
of a group is the id of its latest micro-batch, and the offset's metadata is JSON. A task commits
its commit entry in the transaction that contains its records. The driver writes the batch marker
when all tasks of the micro-batch have succeeded. A task writes the layout when a micro-batch begins
with a new number of partitions. With ``send.from=driver``, the driver is the only task of every
micro-batch, and writes it in one transaction.

Tests search every order of the protocol's steps with the functions of this file
(tests/search/layout_model.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from spark_kafka_sink.config.producer_options import FROM_DRIVER, ExactlyOnceOptions
from spark_kafka_sink.errors import (
    InvalidOption,
    KafkaSinkError,
    LedgerAhead,
    LedgerLost,
    PartitionsChanged,
    ReplayDiffers,
)
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset

_VERSION = 1

#: of ``transactional.id.prefix``; the query's id follows
DEFAULT_PREFIX = "kafka-nb-"


@dataclass(frozen=True)
class BatchMarker:
    """The latest micro-batch that all tasks have committed, and how many tasks it had.

    ``partitions`` 0: it had no rows, and perhaps no tasks.
    """

    batch_id: int
    partitions: int

    def to_offset(self) -> CommittedOffset:
        return _to_offset(self.batch_id, _partition_fields(self.partitions))


@dataclass(frozen=True)
class CommitEntry:
    """The latest micro-batch that a Spark partition has committed.

    ``partitions``: what the task's option said; its stage may have had more. ``rows``: how many
    records; ``fingerprint``: of all records that were sent. ``query_id``: of the driver's task.
    """

    batch_id: int
    partitions: int
    rows: int
    fingerprint: str
    query_id: str = ""

    def to_offset(self) -> CommittedOffset:
        fields: dict[str, Any] = {"rows": self.rows, "fingerprint": self.fingerprint}
        if self.query_id:
            fields["query_id"] = self.query_id
        return _to_offset(self.batch_id, _partition_fields(self.partitions) | fields)


@dataclass(frozen=True)
class Layout:
    """How many Spark partitions a micro-batch has, from before its first record is sent.

    ``partitions`` 0: a task is claiming the layout, so the number is not known.
    ``is_final``: a Spark partition has committed, so no claim may change the number any more.
    ``grown_by``: a stage with more tasks than ``exactly.once.partitions`` says, which the driver
    reports afterwards. Its tasks beyond the option have raised the number, also if it is final, so
    that later claims fence them too. Other stages may send only if their option says this number.
    """

    batch_id: int
    partitions: int
    is_final: bool = False
    grown_by: str = ""

    @classmethod
    def claiming(cls, batch_id: int) -> Layout:
        return cls(batch_id, 0)

    def to_offset(self) -> CommittedOffset:
        fields = {"is_final": self.is_final, "grown_by": self.grown_by}
        return _to_offset(self.batch_id, _partition_fields(self.partitions) | fields)


@dataclass(frozen=True)
class ClaimProgress:
    """How far a claim of the layout has come, so that others see whether it still works.

    ``claim``: its name; ``steps``: that it has done. Not part of the claim's transaction.
    """

    batch_id: int
    claim: str
    steps: int
    has_ended: bool = False

    def to_offset(self) -> CommittedOffset:
        fields = {"claim": self.claim, "steps": self.steps, "has_ended": self.has_ended}
        return _to_offset(self.batch_id, fields)


def prefix_of(settings: ExactlyOnceOptions, query_id: str | None) -> str:
    """The option, or else a name with the query's id. Raises InvalidOption without either."""
    if settings.prefix is not None:
        return settings.prefix
    if query_id is None:
        raise InvalidOption(
            "delivery.guarantee=exactly-once needs transactional.id.prefix here, because Spark "
            "does not pass the query's id; choose a name that no other query uses, and keep it. "
            "For a batch without an id, leave delivery.guarantee out"
        )
    return f"{DEFAULT_PREFIX}{query_id}"


def marker_group(prefix: str) -> str:
    return f"{prefix}.driver"


def layout_group(prefix: str) -> str:
    """The group of the layout, and the transactional id of the tasks that write it."""
    return f"{prefix}.layout"


def claim_group(prefix: str) -> str:
    """In which claims of the layout say how far they are."""
    return f"{prefix}.claim"


def commit_entry_group(prefix: str, partition: int) -> str:
    """The group of a Spark partition, and the transactional id of its tasks."""
    return f"{prefix}.{partition}"


def read_batch_marker(committed: CommittedOffset | None, group: str) -> BatchMarker | None:
    """Raises LedgerLost if the group's offset is not a batch marker."""
    if committed is None:
        return None
    fields = _fields(committed, group, partitions=int)
    return BatchMarker(committed.offset, _partitions(fields))


def read_commit_entry(committed: CommittedOffset | None, group: str) -> CommitEntry | None:
    """Raises LedgerLost if the group's offset is not a commit entry."""
    if committed is None:
        return None
    fields = _fields(committed, group, partitions=int, rows=int, fingerprint=str)
    query_id = str(fields.get("query_id", ""))
    rows, fingerprint = fields["rows"], fields["fingerprint"]
    return CommitEntry(committed.offset, _partitions(fields), rows, fingerprint, query_id)


def read_layout(committed: CommittedOffset | None, group: str) -> Layout | None:
    """Raises LedgerLost if the group's offset is not a layout."""
    if committed is None:
        return None
    fields = _fields(committed, group, partitions=int, is_final=bool)
    grown_by = str(fields.get("grown_by", ""))  # older versions wrote none
    return Layout(committed.offset, _partitions(fields), fields["is_final"], grown_by)


def read_claim_progress(committed: CommittedOffset | None, group: str) -> ClaimProgress | None:
    """Raises LedgerLost if the group's offset does not say how far a claim is."""
    if committed is None:
        return None
    fields = _fields(committed, group, claim=str, steps=int, has_ended=bool)
    return ClaimProgress(committed.offset, fields["claim"], fields["steps"], fields["has_ended"])


def transaction_count(partitions: int) -> int:
    """How many transactional ids a micro-batch with this number of partitions has."""
    return 1 if partitions == FROM_DRIVER else partitions


def _partition_fields(partitions: int) -> dict[str, Any]:
    """Earlier versions read the driver's as one partition, and fence it like one."""
    if partitions == FROM_DRIVER:
        return {"partitions": 1, "sent_from": "driver"}
    return {"partitions": partitions}


def _partitions(fields: Mapping[str, Any]) -> int:
    return FROM_DRIVER if fields.get("sent_from") == "driver" else int(fields["partitions"])


def _to_offset(batch_id: int, fields: dict[str, Any]) -> CommittedOffset:
    return CommittedOffset(batch_id, json.dumps({"version": _VERSION, **fields}))


def _fields(committed: CommittedOffset, group: str, **types: type) -> dict[str, Any]:
    if not committed.metadata:
        raise LedgerLost(
            f"the consumer group {group} has the offset {committed.offset} without metadata. "
            "Either these brokers do not keep the metadata of offsets, which exactly-once needs: "
            "set delivery.guarantee=at-least-once; or another client has committed it: choose "
            "another transactional.id.prefix"
        )
    try:
        fields = json.loads(committed.metadata)
        is_readable = fields["version"] == _VERSION and all(
            isinstance(fields[name], kind) for name, kind in types.items()
        )
    except (ValueError, TypeError, KeyError):
        is_readable = False
    if not is_readable:
        raise LedgerLost(
            f"the consumer group {group} has the offset {committed.offset}, which this version of "
            f"the sink did not write ({committed.metadata[:100]!r}). Choose another "
            "transactional.id.prefix, or run the version that wrote it"
        )
    return dict(fields)


@dataclass(frozen=True)
class Task:
    """A Spark partition of a micro-batch, of a query whose ledger begins with ``first_batch``.

    ``partitions``: ``exactly.once.partitions``, or FROM_DRIVER; the ``stage`` may have more or
    fewer. ``stage``: the same text in all of its tasks, and another one whenever Spark starts the
    micro-batch again. ``is_batch``: not of a query, so that ids of micro-batches may be left out,
    also the first ones. ``query_id``: of the driver's task, if Spark passes it.
    """

    batch_id: int
    partition: int
    partitions: int
    first_batch: int = 0
    stage: str = ""
    is_batch: bool = False
    query_id: str = ""

    def __str__(self) -> str:
        if self.partitions == FROM_DRIVER:
            return f"{'batch' if self.is_batch else 'micro-batch'} {self.batch_id}"
        return f"micro-batch {self.batch_id}, partition {self.partition}"


class Decision(Enum):
    """What a task does."""

    SEND = "send its rows"
    VERIFY = "send nothing: it was committed before; compare its rows, but for the driver's"
    CLAIM = "claim the layout, or wait until a task with the same number has; then decide again"
    FAIL_AHEAD = "fail: LedgerAhead"
    FAIL_LOST = "fail: LedgerLost"
    FAIL_CHANGED = "fail: PartitionsChanged"


_CALL_ALWAYS = (
    "with foreach_batch, call its function for every micro-batch, also an empty one (no isEmpty "
    "guard, no choice by the micro-batch's id), and let its errors end the query (no try/except)"
)
_DELETED = (
    "were deleted, have expired (offsets.retention.minutes) or lost entries in an unclean leader "
    "election"
)


class Lack(Enum):
    """What a ledger lacks if it is lost, and the causes, the likeliest first."""

    EVERYTHING = (
        "The query is new to this ledger: it ran before without exactly-once, or with another "
        "cluster, transactional.id.prefix or topic (then set exactly.once.ledger.topic to the "
        f"former one), or its consumer groups {_DELETED}. Or earlier micro-batches were skipped: "
        f"{_CALL_ALWAYS}"
    )
    MICRO_BATCHES = (
        "The micro-batches in between were not written, or their errors were caught: "
        f"{_CALL_ALWAYS}. If that is so already, the ledger's consumer groups {_DELETED}, or were "
        "restored, or the query ran in between without exactly-once"
    )
    MARKER = (
        "This partition committed a micro-batch that was never marked as complete. An error of it "
        f"was caught: {_CALL_ALWAYS}. If that is so already, the driver's marker is older: "
        "restored, or written by a driver that had been paused, or by a request that arrived late; "
        "or its consumer group was deleted or has expired (offsets.retention.minutes)"
    )
    ENTRY = (
        "The driver's marker is complete, and this partition's entry is missing: the ledger's "
        f"consumer groups {_DELETED}"
    )


@dataclass(frozen=True)
class Ledger:
    """The part of the ledger that concerns a task."""

    marker: BatchMarker | None
    layout: Layout | None
    entry: CommitEntry | None

    def decide(self, task: Task) -> Decision:
        """The task's next step; the ledger was read after its ``init_transactions``.

        Spark starts a micro-batch only when the one before is marked as complete, so the marker
        names this one or the one before, unless a checkpoint was restored, groups were deleted, or
        the query ran without exactly-once.
        """
        now = task.batch_id
        known = (self.marker, self.layout, self.entry)
        is_ahead = any(part is not None and part.batch_id > now for part in known)
        if is_ahead or self._is_of_another_query(task):
            return Decision.FAIL_AHEAD
        committed_with = self._partitions_committed(task)
        if committed_with is not None and not self._may_write(task, committed_with):
            return Decision.FAIL_CHANGED
        if self.entry is not None and self.entry.batch_id == now:
            # Its task had another option, and an open claim hides the number: wait for its end.
            return Decision.CLAIM if committed_with is None else Decision.VERIFY
        if self._is_lost(task):
            return Decision.FAIL_LOST
        partitions = self.partitions(task) or 0
        if self._may_write(task, partitions) and task.partition < transaction_count(partitions):
            return Decision.SEND
        return Decision.CLAIM

    def _is_of_another_query(self, task: Task) -> bool:
        """Whether the driver committed the micro-batch for another query, or another checkpoint.

        Its rows may be others, which the driver does not compare.
        """
        entry = self.entry
        if entry is None or entry.batch_id != task.batch_id:
            return False
        return bool(entry.query_id and task.query_id) and entry.query_id != task.query_id

    def decide_or_raise(self, task: Task, prefix: str) -> Decision:
        """SEND, VERIFY or CLAIM; raises LedgerAhead, LedgerLost or PartitionsChanged."""
        decision = self.decide(task)
        if decision in (Decision.SEND, Decision.VERIFY, Decision.CLAIM):
            return decision
        raise self.error(decision, task, prefix)

    def partitions(self, task: Task) -> int | None:
        """How many partitions its micro-batch has; None: not known. Only their tasks may send.

        Without a layout of its own, a micro-batch has the number of the one before.
        """
        layout = self._layout_of(task.batch_id)
        if layout is not None:
            return layout.partitions
        marker = self.marker
        if marker is not None and (task.is_batch or marker.batch_id == task.batch_id - 1):
            return marker.partitions
        return None

    def is_claimed(self, task: Task) -> bool:
        """Whether the number of partitions of the task's micro-batch was claimed."""
        return self._layout_of(task.batch_id) is not None

    def wanted_layout(self, task: Task) -> tuple[Layout, int]:
        """The layout that a task claims, and the number of partitions whose ids it fences before.

        A task beyond its option raises the number to include itself, so that later claims fence it
        too. That fences nobody, and keeps ``is_final``.
        """
        partitions = self.partitions(task) or 0
        is_own = self._may_write(task, partitions)
        if task.partition < transaction_count(task.partitions) or (partitions and not is_own):
            return Layout(task.batch_id, task.partitions), partitions
        layout = self._layout_of(task.batch_id)
        is_final = layout is not None and layout.is_final
        return Layout(task.batch_id, task.partition + 1, is_final, task.stage), 0

    def error(self, decision: Decision, task: Task, prefix: str) -> KafkaSinkError:
        """The error of a decision to fail."""
        marker, entry = self.marker, self.entry
        committed = (
            "committed" if task.partitions == FROM_DRIVER else "that this partition committed"
        )
        kind = "batch" if task.is_batch else "micro-batch"
        known = (
            f"in the ledger {prefix}, the latest complete {kind} is {_batch_id(marker)}, "
            f"and the latest one {committed} is {_batch_id(entry)}"
        )
        new_ledger = f"a new transactional.id.prefix and exactly.once.first.batch={task.batch_id}"
        if decision is Decision.FAIL_AHEAD and task.is_batch:
            return LedgerAhead(
                f"{task}: {known}. A later batch was written, or begun, before: pass ids that "
                "grow, such as the time for which a run is scheduled. For a backfill, or runs in "
                "any order, give each run a transactional.id.prefix of its own, such as "
                f"{prefix}-{task.batch_id}: what was written with this one is written again then"
            )
        if decision is Decision.FAIL_AHEAD:
            return LedgerAhead(
                f"{task}: {known}. The checkpoint is older than the topics: restore the newer one. "
                "Or it is new (deleted or moved), or another query has used this prefix: set "
                f"{new_ledger}, which also writes micro-batches again on purpose"
            )
        if decision is Decision.FAIL_CHANGED:
            return self._changed_error(task, known)
        remedy = f"exactly.once.first.batch={task.batch_id}"
        if marker is not None and marker.batch_id == task.batch_id:
            remedy = new_ledger  # this one has the micro-batch as complete
        return LedgerLost(
            f"{task}: {known}. {self.lack(task).value}. Then find out "
            f"whether records of {kind} {task.batch_id} are in the topics; if not, or if you "
            f"accept duplicates, set {remedy}"
        )

    def _changed_error(self, task: Task, known: str) -> PartitionsChanged:
        number = self._partitions_committed(task)
        is_now = f"exactly.once.partitions={task.partitions}"
        if task.partitions == FROM_DRIVER:
            is_now = "send.from=driver"
        if number == FROM_DRIVER:
            was, former = "this micro-batch was committed by the driver", "send.from=driver"
        else:
            was = f"a part of this micro-batch was committed with {number} partitions"
            former = f"its former repartition and exactly.once.partitions={number}"
            if task.partitions == FROM_DRIVER:
                # Without the option, foreach_batch itself chose the number of partitions.
                former = f"send.from=executors, {former}, if it had them"
        return PartitionsChanged(
            f"{task}: {was}, but now {is_now}; {known}. Start the query as it was then, with "
            f"{former}, and change it when this micro-batch is complete"
        )

    def lack(self, task: Task) -> Lack:
        """What is missing, if the decision is FAIL_LOST."""
        marked, committed = (
            -1 if part is None else part.batch_id for part in (self.marker, self.entry)
        )
        if marked < committed:
            return Lack.MARKER
        if marked >= 0 and (task.is_batch or marked >= task.batch_id - 1):
            return Lack.ENTRY
        return Lack.EVERYTHING if marked < 0 else Lack.MICRO_BATCHES

    def _layout_of(self, batch_id: int) -> Layout | None:
        is_present = self.layout is not None and self.layout.batch_id == batch_id
        return self.layout if is_present else None

    def _may_write(self, task: Task, partitions: int) -> bool:
        """Whether a task may write a micro-batch that has this number of partitions.

        Its option says so; or its own stage has more than the option says, which the driver
        reports.
        """
        layout = self._layout_of(task.batch_id)
        is_grown = layout is not None and layout.grown_by == task.stage != ""
        return partitions == task.partitions or is_grown

    def _partitions_committed(self, task: Task) -> int | None:
        """The final partition count: that with which a partition committed.

        None: none has, or an open claim hides the number.
        """
        now, marker, entry = task.batch_id, self.marker, self.entry
        if marker is not None and marker.batch_id == now and marker.partitions:
            return marker.partitions
        layout = self._layout_of(now)
        if layout is not None and layout.is_final:
            return layout.partitions
        if entry is None or entry.batch_id != now:
            return None
        if layout is not None and layout.partitions:
            return layout.partitions  # the entry has the option, but its stage may have had more
        is_known = layout is None or entry.partitions == task.partitions
        return entry.partitions if is_known else None

    def _is_lost(self, task: Task) -> bool:
        """Whether the ledger lacks something, if the partition is not committed yet."""
        now, marker, entry = task.batch_id, self.marker, self.entry
        if marker is not None and marker.batch_id == now and marker.partitions:
            return True  # a marked micro-batch has a commit entry of every partition
        if now == task.first_batch:
            return False
        if marker is None or (marker.batch_id < now - 1 and not task.is_batch):
            return not task.is_batch
        is_missing = entry is None or entry.batch_id < marker.batch_id
        return is_missing and task.partition < transaction_count(marker.partitions)


def claimed_layout(
    wanted: Layout, previous_partition_count: int, entries: Iterable[CommitEntry]
) -> Layout:
    """The layout that a claim commits.

    ``entries``: of the partitions whose transactional ids were fenced, read after that. If one of
    them belongs to the micro-batch, the previous partition count is final.
    """
    if any(entry.batch_id == wanted.batch_id for entry in entries):
        return Layout(wanted.batch_id, previous_partition_count, is_final=True)
    return wanted


def check_replay(task: Task, entry: CommitEntry, rows: int, fingerprint: str) -> None:
    """Raise ReplayDiffers unless the rows match the commit entry.

    What the driver has committed is a whole micro-batch, and its rows may be others now. But if
    there are more, the checkpoint may have been restored, and some are in no micro-batch any more.
    """
    again = (
        "to write all rows again, so that some are there twice, set a new transactional.id.prefix "
        f"and exactly.once.first.batch={task.batch_id}"
    )
    if entry.partitions == FROM_DRIVER:
        if rows > entry.rows:
            raise ReplayDiffers(
                f"{task}: its number of rows was {entry.rows} when it was committed, and is {rows} "
                "now. If the checkpoint is older than the topics, restore the newer one. If it is "
                "new (deleted or moved), if the last files in it were deleted, or if the query "
                f"yields other rows each time: {again}"
            )
        return
    if (entry.rows, entry.fingerprint) == (rows, fingerprint):
        return
    what = f"{entry.rows} rows, not {rows}" if rows != entry.rows else f"{rows} different rows"
    raise ReplayDiffers(
        f"{task}: an earlier attempt has committed {what}. If the query has another repartition "
        "now, restore the former one until this micro-batch is complete. Make the query "
        "deterministic: no rand or uuid in it, no current_timestamp inside foreachBatch, and a "
        "repartition whose key alone decides where a row goes. Keep timestamp.column as it was; "
        "before 0.4, a column timestamp was always written. Another sink of the same query, or a "
        "second call of foreach_batch's function in one micro-batch, needs its own "
        f"transactional.id.prefix. If the checkpoint is new (deleted or moved), or {again}"
    )


def _batch_id(known: BatchMarker | CommitEntry | None) -> str:
    return "none" if known is None else str(known.batch_id)
