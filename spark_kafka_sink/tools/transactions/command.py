"""The command ``transactions``: lists, describes and ends what is open."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from spark_kafka_sink.bounded import call_each
from spark_kafka_sink.config.options import SinkOptions, parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import BrokerUnavailable, InvalidOption, KafkaSinkError
from spark_kafka_sink.tools.transactions import tables
from spark_kafka_sink.tools.transactions.abort import abort
from spark_kafka_sink.tools.transactions.admin import TransactionAdmin
from spark_kafka_sink.tools.transactions.state import (
    BlockedPartition,
    LedgerRow,
    TransactionalId,
    belongs_to,
    in_order,
    ledger_groups,
    ledger_rows,
)
from spark_kafka_sink.transactions.ledger import marker_group
from spark_kafka_sink.transactions.offset_calls import BrokerWait
from spark_kafka_sink.transactions.partition import DEFAULT_PREFIX

_FAILED = 1
_UNUSABLE = 2
_WIDTH_WITHOUT_TERMINAL = 1_000  # a line per row, for other programs

# Its log lines repeat its errors. With a handler, they are not printed.
logging.getLogger("spark_kafka_sink.librdkafka").addHandler(logging.NullHandler())

T = TypeVar("T")


@dataclass(frozen=True)
class _Found:
    """``ids`` in order; ``blocked``: where consumers wait; ``names`` by producer id."""

    ids: list[TransactionalId]
    blocked: list[BlockedPartition]
    names: Mapping[int, str]
    ledger: list[LedgerRow] = field(default_factory=list)

    @property
    def open(self) -> list[TransactionalId]:
        return [each for each in self.ids if each.is_open]


def run(
    action: str,
    given: Mapping[str, str],
    prefix: str | None,
    timeout_seconds: float,
    *,
    is_confirmed: bool = False,
) -> int:
    """Run ``list``, ``describe`` or ``abort`` with the sink's options; returns the exit code.

    0; 1 if the brokers do not answer, or refuse; 2 if an option is invalid.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    deadline = Deadline(timeout_seconds)
    try:
        options = parse(given)
        wanted = _prefix(action, options, prefix)
        found = _bounded(lambda: _find(action, options, wanted, deadline), deadline)
        if action == "describe":
            _print_description(console, wanted, found)
        else:
            _print_list(console, action, wanted, found)
        if action == "abort" and found.open:
            wait = f"--timeout, {timeout_seconds:g} s"
            return _abort(console, options, found.open, deadline, wait, is_confirmed=is_confirmed)
    except InvalidOption as error:
        return _fail(error, _UNUSABLE)
    except KafkaSinkError as error:
        return _fail(error, _FAILED)
    return 0


def _prefix(action: str, options: SinkOptions, prefix: str | None) -> str:
    own = options.exactly_once.prefix if options.exactly_once else None
    found = prefix or own
    if found is None and action != "list":
        raise InvalidOption(
            f"{action} needs --prefix, the transactional.id.prefix of one query. Its default is "
            f"{DEFAULT_PREFIX} followed by the query's id; `transactions list` shows the ids"
        )
    return found or DEFAULT_PREFIX


def _bounded(function: Callable[[], T], deadline: Deadline) -> T:
    (call,) = call_each(lambda _: function(), [None], deadline)
    if isinstance(call.error, TimeoutError):
        raise BrokerUnavailable(f"the brokers do not answer: {call.error} (--timeout). Run doctor")
    if call.error is not None:
        raise call.error
    return call.value  # type: ignore[return-value]  # without an error, there is one


# --- requests ------------------------------------------------------------------------------------


def _find(action: str, options: SinkOptions, prefix: str, deadline: Deadline) -> _Found:
    with closing(TransactionAdmin(options.producer.client, deadline)) as admin:
        producers = admin.producers()
        is_wanted: Callable[[str, str], bool] = str.startswith if action == "list" else belongs_to
        ids = in_order(admin.describe(name for name in producers if is_wanted(name, prefix)))
        partitions = {
            part for each in ids if each.is_open for part in each.partitions if not part.is_internal
        }
        if options.topic is not None:
            partitions.update(admin.partitions(options.topic))
        blocked = [
            each
            for each in admin.offsets(sorted(partitions))
            if each.stable_offset < each.high_watermark
        ]
        names = {producer_id: name for name, producer_id in producers.items()}
        ledger = _ledger(admin, options, prefix, ids) if action == "describe" else []
        return _Found(ids, blocked, names, ledger)


def _ledger(
    admin: TransactionAdmin, options: SinkOptions, prefix: str, ids: Sequence[TransactionalId]
) -> list[LedgerRow]:
    marked = ledger_rows(prefix, admin.group_offsets([marker_group(prefix)]))
    numbers = [each.name.rpartition(".")[2] for each in ids]
    partitions = max(
        (
            (options.exactly_once and options.exactly_once.partitions) or 0,
            *(row.committed.partitions for row in marked),
            *(int(number) + 1 for number in numbers if number.isdecimal()),
        )
    )
    return ledger_rows(prefix, admin.group_offsets(ledger_groups(prefix, partitions)))


# --- output --------------------------------------------------------------------------------------


def _print_list(console: Console, action: str, prefix: str, found: _Found) -> None:
    whose = (
        f"whose id begins with {prefix}"
        if action == "list"
        else f"of the query with the prefix {prefix}"
    )
    if not found.open:
        console.print(Text(f"No open transaction {whose}, or none that this user may describe"))
    else:
        console.print(Text(f"Open transactions {whose}", "bold"))
        console.print(tables.transactions(found.open, time.time()))
    _print_blocked(console, found)


def _print_description(console: Console, prefix: str, found: _Found) -> None:
    if found.ids:
        console.print(Text(f"Transactional ids of {prefix}", "bold"))
        console.print(tables.transactions(found.ids, time.time()))
    else:
        console.print(Text(f"No transactional id of {prefix}, or none that this user may describe"))
    _print_blocked(console, found)
    console.print(tables.ledger(prefix, found.ledger))


def _print_blocked(console: Console, found: _Found) -> None:
    if found.blocked:
        console.print(tables.blocked(found.blocked, found.names))


def _abort(
    console: Console,
    options: SinkOptions,
    open_ids: Sequence[TransactionalId],
    deadline: Deadline,
    wait_option: str,
    *,
    is_confirmed: bool,
) -> int:
    if not is_confirmed:
        console.print(
            Text(
                "Dry run: nothing was ended. --yes ends these transactions; read_committed "
                "consumers never see what they have not committed. Stop the query first, or its "
                "running tasks fail and are retried"
            )
        )
        return 0
    code = 0
    for each in open_ids:
        try:
            abort(options.producer, each, BrokerWait(deadline, wait_option, f"ending {each.name}"))
        except KafkaSinkError as error:
            code = _fail(error, _FAILED)
        else:
            console.print(Text(f"ended: {each.name}"))
    return code


def _fail(error: KafkaSinkError, code: int) -> int:
    print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201
    return code
