"""Carries out a schedule of faults: each begins at its time and ends after its hold."""

from __future__ import annotations

import heapq
import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from evidence import UPSTREAM_FAILED, WORKER_KILLED
from fault_schedule import UPSTREAM_TARGETS, Fault
from hung_attempts import HungAttempts
from query_faults import End, QueryFaults
from query_kinds import (
    EXACTLY_ONCE,
    KINDS_WITH_TASKS,
    QUERY_KINDS,
    SPARK_PARTITIONS,
    TOPIC_PARTITIONS,
    transactional_id,
)
from stream_process import StreamProcess
from three_brokers import NODES, ThreeBrokers

# A fault of a broker waits so long for a whole cluster, one of a worker for workers.
_PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_HANG_SECONDS = 5.0
_ANSWER_DELAY_SECONDS = 0.4
_CORRUPT_SHARE = 0.2
#: a zombie may be about as quick as the task, or come when the next micro-batches are there
ZOMBIE_DELAYS = (0.0, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 8.0)

_SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM}
_QUERY_TARGETS = (*UPSTREAM_TARGETS, "sibling task", "query", "partitions")


@dataclass(frozen=True)
class Effect:
    """What a fault did. ``at_seconds``: since the first fault could begin."""

    at_seconds: float
    fault: Fault
    text: str


@dataclass
class Injector:
    """``run`` carries out faults; ``effects`` and ``explanations`` have the results."""

    brokers: ThreeBrokers
    streams: StreamProcess
    folder: Path
    hung: HungAttempts
    say: Callable[[str], None]
    effects: list[Effect] = field(default_factory=list)
    #: on the monotonic clock
    worker_kills: list[float] = field(default_factory=list)
    #: how often Spark's driver ended although no fault had killed it
    unexpected_ends: int = 0
    #: when the last fault had ended, on the monotonic clock
    ended_at: float = 0.0
    _next_look: float = 0.0
    _ends: list[tuple[float, int, End]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    began_at: float = field(default_factory=time.monotonic)
    _are_streams_ended: bool = False

    def __post_init__(self) -> None:
        self._queries = QueryFaults(self.streams, self.folder)

    @property
    def explanations(self) -> dict[str, list[float]]:
        """Names of failures of queries, and when we did what explains them."""
        return {
            WORKER_KILLED: self.worker_kills,
            UPSTREAM_FAILED: self._queries.failures_ordered_at,
        }

    def run(self, faults: list[Fault], seconds: float) -> None:
        """Returns after so many seconds, when all faults have ended.

        On a slow machine, brokers need longer to recover than the schedule gives them. Then all
        later faults are postponed, and the last ones left out.
        """
        self.began_at = time.monotonic()
        postponed = 0.0
        for fault in faults:
            at = fault.at_seconds + postponed
            if at + fault.hold_seconds > seconds:
                break
            self._wait_until(at)
            if fault.concerns_broker and not fault.is_repeated:
                self._wait_for(self.brokers.are_together)
            elif fault.target == "task" or fault.target.startswith("worker"):
                self._wait_for(self.streams.workers)
            elif fault.target == "partitions" and fault.is_repeated:
                self._wait_for(self._queries.has_changed)
            if self._now() > seconds:
                break
            self.begin(fault)
            postponed = max(postponed, self._now() - fault.at_seconds)
        self._wait_until(seconds)
        self.end_all()

    def begin(self, fault: Fault) -> None:
        at = self._now()
        text, end = self._begin(fault)
        self.effects.append(Effect(at, fault, text))
        self.say(f"{at:7.1f} s  {fault.kind:35} {text}")
        if end is not None:
            heapq.heappush(self._ends, (self._now() + fault.hold_seconds, next(self._numbers), end))

    def wait(self, seconds: float) -> None:
        """Let time pass; faults whose time has come end."""
        self._wait_until(self._now() + seconds)

    def end_all(self) -> None:
        while self._ends:
            heapq.heappop(self._ends)[2]()
        self.ended_at = time.monotonic()

    # --- time -------------------------------------------------------------------------------------

    def _now(self) -> float:
        return time.monotonic() - self.began_at

    def _wait_until(self, at_seconds: float) -> None:
        while (now := self._now()) < at_seconds:
            while self._ends and self._ends[0][0] <= now:
                heapq.heappop(self._ends)[2]()
            self._look_after()
            next_at = min([at_seconds, *(end[0] for end in self._ends[:1])])
            time.sleep(min(_LOOK_SECONDS, max(0.0, next_at - self._now())))

    def _look_after(self) -> None:
        self.brokers.look_after()
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _HANG_SECONDS
            self.hung.look()
        if not self.streams.is_running and not self._are_streams_ended:
            # A driver that obeys a request leaves this file.
            asked = self.folder / "driver-killed"
            how = "as it was asked to" if asked.exists() else "by itself"
            self.unexpected_ends += not asked.exists()
            asked.unlink(missing_ok=True)
            self.say(f"{self._now():7.1f} s  Spark's driver has ended {how}; it starts again")
            self.streams.kill()
            self.streams.start()

    def _wait_for(self, condition: Callable[[], object]) -> None:
        latest = self._now() + _PATIENCE_SECONDS
        while not condition() and self._now() < latest:
            self.wait(_LOOK_SECONDS)

    # --- the faults -------------------------------------------------------------------------------

    def _begin(self, fault: Fault) -> tuple[str, End | None]:
        """What it did, and what ends it."""
        begin = {
            "streams": self._kill_streams,
            "connections": self._disturb_connections,
            "two brokers": self._pause_two,
            "replicas": self._reassign,
            "brokers in turn": self._restart_in_turn,
            "worker": self._signal_worker,
            "worker before acknowledgement": self._ask_worker_to_die,
            "worker after acknowledgement": self._ask_worker_to_die,
            "task": self._ask_for_zombie,
            **dict.fromkeys(_QUERY_TARGETS, self._queries.begin),
        }
        return begin.get(fault.target, self._disturb_broker)(fault)

    def _disturb_broker(self, fault: Fault) -> tuple[str, End | None]:
        node, why = self._node(fault)
        if fault.action == "pause":
            return self._pause([node], fault, why)
        if fault.action == "cut off":
            cut = ExitStack()
            cut.enter_context(self.brokers.cut_off(node))
            return f"broker {node}{why} from the others, for {fault.hold_seconds:.1f} s", cut.close
        self.brokers.end(node, _SIGNALS[fault.action])
        return f"broker {node}{why}, back after {fault.hold_seconds:.1f} s", (
            lambda: self.brokers.start(node)
        )

    def _pause_two(self, fault: Fault) -> tuple[str, End | None]:
        spared = NODES[fault.choice % len(NODES)]
        return self._pause([node for node in NODES if node != spared], fault)

    def _reassign(self, fault: Fault) -> tuple[str, End]:
        """Every partition loses a replica, gets it back, and is led by another broker each time."""
        pick = random.Random(fault.choice)
        self.brokers.reassign(pick, len(NODES) - 1)
        return f"of all partitions, for {fault.hold_seconds:.1f} s", (
            lambda: self.brokers.reassign(pick, len(NODES))
        )

    def _restart_in_turn(self, fault: Fault) -> tuple[str, None]:
        """As an upgrade does, with another transaction.version in its middle."""
        pick = random.Random(fault.choice)
        order = pick.sample(NODES, len(NODES))
        for node in order:
            if node == order[-1]:
                former, version = self.brokers.change_transaction_version(pick)
            self.brokers.end(node, signal.SIGTERM)
            self._wait_for(lambda node=node: not self.brokers.is_running(node))
            self.brokers.start(node)
            self._wait_for(self.brokers.are_together)
        names = ", ".join(str(node) for node in order)
        return f"{names}, with transaction.version from {former} to {version}", None

    def _node(self, fault: Fault) -> tuple[int, str]:
        """Who has the role; any broker if that is unknown."""
        kind = QUERY_KINDS[fault.choice % len(QUERY_KINDS)]
        if fault.target == "leader":
            partition = fault.choice // len(QUERY_KINDS) % TOPIC_PARTITIONS
            node, why = self.brokers.leader(kind.topic, partition), f"{kind.topic}[{partition}]"
        elif fault.target == "controller":
            node, why = self.brokers.controller(), ""
        elif fault.target == "coordinator":
            kinds = [kind for kind in QUERY_KINDS if kind.guarantee == EXACTLY_ONCE]
            kind = kinds[fault.choice % len(kinds)]
            partitions = SPARK_PARTITIONS if kind.has_tasks else 1
            name = transactional_id(kind.topic, fault.choice // len(kinds) % partitions)
            node, why = self.brokers.coordinator(name), name
        else:
            return NODES[fault.choice % len(NODES)], ""
        if node is None:
            return NODES[fault.choice % len(NODES)], f" (no {fault.target} known)"
        return node, f" ({fault.target}{' of ' + why if why else ''})"

    def _pause(self, nodes: list[int], fault: Fault, why: str = "") -> tuple[str, End]:
        for node in nodes:
            self.brokers.pause(node)

        def end() -> None:
            for node in nodes:
                self.brokers.resume(node)

        names = " and ".join(str(node) for node in nodes)
        return f"broker {names}{why}, for {fault.hold_seconds:.1f} s", end

    def _disturb_connections(self, fault: Fault) -> tuple[str, End | None]:
        node = NODES[fault.choice % len(NODES)]
        proxy = self.brokers.proxies[node]
        if fault.action == "drop":
            proxy.drop_connections()
            return f"of broker {node}", None
        if fault.action == "delay":
            proxy.delay_seconds = _ANSWER_DELAY_SECONDS

            def end() -> None:
                proxy.delay_seconds = 0.0

            return (
                f"of broker {node}: answers {_ANSWER_DELAY_SECONDS} s late, "
                f"for {fault.hold_seconds:.1f} s"
            ), end
        if fault.action == "corrupt":
            pick = random.Random(fault.choice)
            before = proxy.corrupted
            proxy.corrupts = lambda: pick.random() < _CORRUPT_SHARE

            def heal() -> None:
                proxy.corrupts = lambda: False
                self.say(f"{'':12}{proxy.corrupted - before} produce requests were corrupted")

            return f"of broker {node}: bits of records, for {fault.hold_seconds:.1f} s", heal
        silence = ExitStack()
        silence.enter_context(proxy.silent())
        return f"of broker {node}, for {fault.hold_seconds:.1f} s", silence.close

    def _signal_worker(self, fault: Fault) -> tuple[str, End | None]:
        workers = self.streams.workers()
        if not workers:
            return "none was running", None
        pid = workers[fault.choice % len(workers)]
        number = signal.SIGSTOP if fault.action == "pause" else signal.SIGKILL
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        if fault.action == "kill":
            self.worker_kills.append(time.monotonic())
            return f"process {pid}", None

        def end() -> None:
            self.worker_kills.append(time.monotonic())  # Spark may have replaced it
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        return f"process {pid}, for {fault.hold_seconds:.1f} s", end

    def _ask_worker_to_die(self, fault: Fault) -> tuple[str, End]:
        """At the moment that the target's name says; of a stream without tasks, Spark dies."""
        topic = QUERY_KINDS[fault.choice % len(QUERY_KINDS)].topic
        moment = fault.target.split()[1]
        return self._request(f"kill-{moment}", topic, fault, "", is_deadly=True)

    def _ask_for_zombie(self, fault: Fault) -> tuple[str, End]:
        """A second process makes the same attempt, at once or some seconds late."""
        topic = KINDS_WITH_TASKS[fault.choice % len(KINDS_WITH_TASKS)].topic
        delay = ZOMBIE_DELAYS[fault.choice // len(KINDS_WITH_TASKS) % len(ZOMBIE_DELAYS)]
        text, end = self._request("zombie", topic, fault, str(delay), is_deadly=False)
        return f"{text}, by a second process {delay} s later", end

    def _request(
        self, what: str, topic: str, fault: Fault, text: str, *, is_deadly: bool
    ) -> tuple[str, End]:
        """The next worker that comes to that point takes the request, or the driver."""
        request = self.folder / f"{what}-{topic}"
        request.with_suffix(".new").write_text(text)
        request.with_suffix(".new").rename(request)
        began_at = time.monotonic()

        def end() -> None:
            try:
                request.unlink()
                self.say(f"{'':12}no task of {topic} came to that point ({fault.kind})")
            except FileNotFoundError:
                if is_deadly:
                    self.worker_kills += [began_at, time.monotonic()]

        return f"of {topic}", end

    def _kill_streams(self, _: Fault) -> tuple[str, End]:
        self._are_streams_ended = True
        self.streams.kill()

        def end() -> None:
            self.streams.start()
            self._are_streams_ended = False

        return "Spark with all its queries; they continue from their checkpoints", end
