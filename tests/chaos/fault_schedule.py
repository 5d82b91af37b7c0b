"""Which faults happen when: a pure function of the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

#: transactions of the streams end after this time, and zombies are fenced
TRANSACTION_TIMEOUT_SECONDS = 10.0

BROKER_ACTIONS = ("kill", "terminate", "pause", "cut off")
BROKER_TARGETS = ("broker", "leader", "controller", "coordinator")
#: what concerns the whole cluster, beside the targets above
CLUSTER_TARGETS = ("two brokers", "replicas", "brokers in turn")
#: of one broker's clients, by a proxy
CONNECTION_ACTIONS = ("drop", "delay", "black-hole", "corrupt")
#: where Spark's own side of a task fails once
UPSTREAM_TARGETS = (
    "upstream in the first Arrow batch",
    "upstream between Arrow batches",
    "upstream at the last row",
)

_HOLD_SECONDS = (1.0, 4.0)
# Before and after the controller, and then the others, notice it.
_CUT_SECONDS = (1.0, 10.0)
_PAST_TIMEOUT_SECONDS = (TRANSACTION_TIMEOUT_SECONDS + 1.0, TRANSACTION_TIMEOUT_SECONDS + 4.0)
# A micro-batch begins meanwhile, unless brokers are away.
_REQUEST_SECONDS = (15.0, 15.0)
_BEFORE_STOP_SECONDS = (0.5, 3.0)
_GAP_SECONDS = (0.5, 2.0)
_TWICE_GAP_SECONDS = 0.5
# A restarted broker needs some seconds until it leads again.
_RECOVERY_SECONDS = 2.0
# The last fault ends so long before the end.
_QUIET_SECONDS = 5.0


@dataclass(frozen=True)
class Fault:
    """``action`` on ``target``, which ends after ``hold_seconds``.

    ``at_seconds``: since the streams started; 0 is before their start. ``choice``: which one of
    those that fit, modulo their number.
    """

    at_seconds: float
    action: str
    target: str
    hold_seconds: float
    choice: int
    #: the second of two in a row, which does not wait until the first one has recovered
    is_repeated: bool = False

    @property
    def kind(self) -> str:
        return f"{self.action} {self.target}"

    @property
    def concerns_broker(self) -> bool:
        return self.target in (*BROKER_TARGETS, *CLUSTER_TARGETS)


@dataclass(frozen=True)
class _Kind:
    action: str
    target: str
    hold_seconds: tuple[float, float] = _HOLD_SECONDS
    times: int = 1


#: every kind comes once before any comes again
_KINDS = (
    *(
        _Kind(action, target, _CUT_SECONDS if action == "cut off" else _HOLD_SECONDS)
        for action in BROKER_ACTIONS
        for target in BROKER_TARGETS
    ),
    _Kind("kill", "leader", times=2),
    _Kind("kill", "controller", times=2),
    _Kind("pause", "two brokers", _PAST_TIMEOUT_SECONDS),
    _Kind("reassign", "replicas"),
    # One after the other; the next one when all are together again.
    _Kind("restart", "brokers in turn", (0.0, 0.0)),
    *(_Kind(action, "connections") for action in CONNECTION_ACTIONS),
    _Kind("kill", "worker", (0.0, 0.0)),
    _Kind("kill", "worker", (0.0, 0.0)),
    _Kind("pause", "worker", _PAST_TIMEOUT_SECONDS),
    # Workers kill or repeat themselves; the request for it is withdrawn after this time.
    _Kind("kill", "worker before acknowledgement", _REQUEST_SECONDS),
    _Kind("kill", "worker after acknowledgement", _REQUEST_SECONDS),
    _Kind("kill", "worker after acknowledgement", _REQUEST_SECONDS),
    _Kind("repeat", "task", _REQUEST_SECONDS),
    _Kind("repeat", "task", _REQUEST_SECONDS),
    _Kind("kill", "streams", (0.0, 2.0)),
    *(_Kind("fail", target, _REQUEST_SECONDS) for target in UPSTREAM_TARGETS),
    _Kind("fail", "sibling task", _REQUEST_SECONDS),
    # They hit at their end, when a task may be in the middle of its rows.
    _Kind("stop", "query", _BEFORE_STOP_SECONDS),
    _Kind("change", "partitions", _BEFORE_STOP_SECONDS, times=2),
    _Kind("change", "partitions", _BEFORE_STOP_SECONDS, times=2),
)


def schedule(seed: int, seconds: float) -> list[Fault]:
    """The faults of a run of so many seconds, by time. Faults of brokers do not overlap."""
    generator = random.Random(seed)
    faults: list[Fault] = []
    if generator.random() < 0.5:
        hold = generator.uniform(*_HOLD_SECONDS)
        faults.append(Fault(0.0, "terminate", "broker", hold, generator.randrange(1000)))
    at = brokers_free_at = faults[0].hold_seconds + _RECOVERY_SECONDS if faults else 0.0
    bag: list[_Kind] = []
    while True:
        if not bag:
            bag = generator.sample(_KINDS, len(_KINDS))
        kind = bag.pop()
        at += generator.uniform(*_GAP_SECONDS)
        for time in range(kind.times):
            hold = generator.uniform(*kind.hold_seconds)
            fault = Fault(
                at, kind.action, kind.target, hold, generator.randrange(1000), is_repeated=time > 0
            )
            if fault.concerns_broker:
                if not fault.is_repeated:
                    at = max(at, brokers_free_at)
                fault = replace(fault, at_seconds=at)
                brokers_free_at = at + hold + _RECOVERY_SECONDS
            if at + hold + _QUIET_SECONDS > seconds:
                return faults
            faults.append(fault)
            if time + 1 < kind.times:
                at += hold + _TWICE_GAP_SECONDS
