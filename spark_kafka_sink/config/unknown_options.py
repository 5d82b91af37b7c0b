"""[both] What an option that the sink does not have is: a misspelt one, or somebody else's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

from spark_kafka_sink.config.option import PREFIX, letters, most_similar

_PRODUCER = "producer."
#: what precedes the settings of other clients, as some frameworks write them
_OTHER_CLIENTS = {
    "consumer.": "Kafka's consumer",
    "admin.": "Kafka's admin client",
    "streams.": "Kafka Streams",
}
_UNKNOWN = "Kafka's producer has no such setting"
_NOT_OURS = "not an option of this sink"

# Of 1: another letter in a name of five is 0.8; one more, or one less, is closer.
_SIMILARITY = 0.8


def misspelt_setting(name: str, known: Collection[str]) -> str | None:
    """The producer's setting that ``name`` is most likely meant to be, if it is not another's.

    All names are in lower case, without ``kafka.``.
    """
    base = name.removeprefix(PREFIX).removeprefix(_PRODUCER)
    if base in known:
        return base
    if base.startswith(tuple(_OTHER_CLIENTS)) or owner(base) is not None:
        return None
    return (
        _same_letters(base, known) or _longer(base, known) or most_similar(base, known, _SIMILARITY)
    )


def setting_owner(name: str) -> str:
    """Whose a setting is that the producer does not have, named without ``kafka.``."""
    client = next(
        (whose for start, whose in _OTHER_CLIENTS.items() if name.startswith(start)), None
    )
    return client or owner(name) or _UNKNOWN


def misspelt_option(name: str, known: Collection[str], settings: Collection[str]) -> str | None:
    """The option, or the setting with ``kafka.``, that ``name`` is most likely meant to be.

    ``name``: in lower case, without ``kafka.`` at its beginning. ``settings``: the producer's.
    """
    if option_owner(name, settings) != _NOT_OURS:
        return None
    prefixed = [PREFIX + setting for setting in settings]
    parts_left_out = "." in name and _longer(name, [*known, *prefixed])
    same = _same_letters(name, [*known, *prefixed]) or parts_left_out
    if same:
        return same
    similar = most_similar(name, known, _SIMILARITY)
    # Dictionaries of frameworks have names such as format and schema.
    return None if similar and name in similar.split(".") else similar


def option_owner(name: str, settings: Collection[str]) -> str:
    """Whose an option is that has no ``kafka.``; ``settings``: the producer's."""
    if name in settings:
        return f"the names of the Kafka client's settings begin with {PREFIX}"
    return source_owner(name) or _NOT_OURS


# --- how names differ -----------------------------------------------------------------------------


def _same_letters(name: str, known: Collection[str]) -> str | None:
    wanted = letters(name)
    return next((candidate for candidate in known if letters(candidate) == wanted), None)


def _longer(name: str, known: Collection[str]) -> str | None:
    """A name that has more parts, at its end, or at its beginning."""
    longer = [
        candidate
        for candidate in known
        if candidate.startswith(f"{name}.") or ("." in name and candidate.endswith(f".{name}"))
    ]
    # A store without more is meant to be its file.
    return min(longer, key=lambda n: (not n.endswith(".location"), len(n), n), default=None)


# --- settings that are not the producer's, options that are not the sink's: whose they are -------

# A word that ends in a dot stands for all names that begin so. Settings that Java's producer has
# too are missing: they mean the same to all clients.
_SETTINGS: Mapping[str, str] = {
    "Kafka's consumer": """
        auto.commit.interval.ms auto.offset.reset check.crcs client.rack
        default.api.timeout.ms enable.auto.commit exclude.internal.topics fetch.max.bytes
        fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
        group.remote.assignor heartbeat.interval.ms internal.leave.group.on.close
        internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer
        max.partition.fetch.bytes max.poll.interval.ms max.poll.records
        partition.assignment.strategy session.timeout.ms share.acknowledgement.mode
        share.acquire.mode value.deserializer
        """,
    "librdkafka's consumer": """
        auto.commit.enable consume.callback.max.messages coordinator.query.interval.ms
        enable.auto.offset.store enable.partition.eof fetch.error.backoff.ms fetch.message.max.bytes
        fetch.queue.backoff.ms fetch.wait.max.ms group.protocol.type offset.store.
        queued.max.messages.kbytes queued.min.messages
        """,
    "Kafka's admin client": "bootstrap.controllers",
    "topics": """
        cleanup.policy delete.retention.ms file.delete.delay.ms flush.messages flush.ms
        follower.replication.throttled.replicas index.interval.bytes internal.segment.bytes
        leader.replication.throttled.replicas local.retention. max.compaction.lag.ms
        max.message.bytes message.downconversion.enable message.format.version message.timestamp.
        min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate
        remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable
        replication-factor replication.factor retention.bytes retention.ms segment.
        unclean.leader.election.enable
        """,
    "Kafka's brokers": """
        add.partitions.to.txn. advertised. alter. authorizer.class.name auto.create.topics.enable
        auto.leader.rebalance.enable background.threads broker. client.quota.callback.class
        connection.failed.authentication.delay.ms connections.max.reauth.ms
        control.plane.listener.name controlled.shutdown. controller. cordoned.log.dirs
        create.topic.policy.class.name default.replication.factor delegation.token. delete.records.
        delete.topic.enable early.start.listeners eligible.leader.replicas.enable
        fetch.purgatory.purge.interval.requests follower.fetch.last.tiered.offset.enable
        group.consumer. group.coordinator. group.initial.rebalance.delay.ms group.max. group.min.
        group.share. group.streams. initial.broker.registration.timeout.ms inter.broker.
        internal.metadata. kafka.metrics. leader.imbalance. listener. listeners log.cleaner.
        log.cleanup.policy log.dir log.dir.failure.timeout.ms log.dirs log.flush. log.index.
        log.initial.task.delay.ms log.local. log.message. log.preallocate log.retention. log.roll.
        log.segment. max.connection.creation.rate max.connections max.connections.
        max.incremental.fetch.session.cache.slots max.request.partition.size.limit message.max.bytes
        metadata.log. metadata.max.idle.interval.ms metadata.max.retention. node.id num.io.threads
        num.network.threads num.partitions num.recovery.threads.per.data.dir
        num.replica.alter.log.dirs.threads num.replica.fetchers offset.metadata.max.bytes offsets.
        password.encoder. principal.builder.class process.roles producer.id.expiration.
        producer.purgatory.purge.interval.requests queued.max.request.bytes queued.max.requests
        quota. remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log. replica.
        replication.quota. reserved.broker.max.id sasl.enabled.mechanisms
        sasl.kerberos.principal.to.local.rules sasl.mechanism.controller.protocol
        sasl.mechanism.inter.broker.protocol sasl.server. security.inter.broker.protocol
        server.max.startup.time.ms share.coordinator. share.fetch. socket.listen.backlog.size
        socket.receive.buffer.bytes socket.request.max.bytes socket.send.buffer.bytes
        ssl.allow.dn.changes ssl.allow.san.changes ssl.client.auth ssl.principal.mapping.rules
        telemetry.max.bytes transaction.abort.timed.out.transaction.cleanup.interval.ms
        transaction.max.timeout.ms transaction.partition.verification.enable
        transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.
        transactional.id.expiration.ms unclean.leader.election.interval.ms unstable. zookeeper.
        """,
    "Kafka Connect": """
        access.control. admin.listeners config.action.reload config.storage. connect.protocol
        connector. errors.deadletterqueue. errors.log. errors.retry. errors.tolerance
        exactly.once.support header.converter header.converter. inter.worker. key.converter
        key.converter. name offset.flush. offset.storage. offsets.storage. plugin. predicates
        rebalance.timeout.ms response.http.headers.config rest. scheduled.rebalance.max.delay.ms
        status.storage. task.shutdown.graceful.timeout.ms tasks.max tasks.max.enforce
        topic.creation. topic.tracking. topics.regex transaction.boundary
        transaction.boundary. transforms value.converter value.converter. worker.
        """,
    "Kafka Streams": """
        acceptable.recovery.lag allow.os.group.write.access application.
        buffered.records.per.partition built.in.metrics.version cache.max.bytes.buffering
        commit.interval.ms default.client.supplier default.deserialization. default.dsl.store
        default.key.serde default.list. default.production. default.timestamp.extractor
        default.value.serde deserialization. dsl.store. ensure.explicit.internal.resource.naming
        errors.dead.letter.queue.topic.name log.summary.interval.ms max.task.idle.ms
        max.warmup.replicas num.standby.replicas num.stream.threads poll.ms
        probing.rebalance.interval.ms processing. processor.wrapper.class production.
        rack.aware.assignment. repartition.purge.interval.ms rocksdb.config.setter state.cleanup.
        state.dir statestore.cache.max.bytes task.assignor.class task.timeout.ms
        topology.optimization upgrade.from window.size.ms windowed.inner.class.serde
        windowstore.changelog.additional.retention.ms
        """,
    "serializers for a schema registry": """
        auto.register.schemas basic.auth. bearer.auth. key.subject.name.strategy normalize.schemas
        schema.reflection schema.registry. specific.avro.reader use.latest.version use.schema.id
        value.deserializer. value.serializer. value.subject.name.strategy
        """,
    # Kafka's own of up to 0.8, and what Java's producer had up to 2.0
    "clients of old Kafka versions": """
        block.on.buffer.full broker.list compressed.topics key.serializer.class
        metadata.fetch.timeout.ms producer.type queue.enqueue.timeout.ms serializer.class timeout.ms
        zk.connect
        """,
}

_OPTIONS: Mapping[str, str] = {
    "Spark's Kafka source": """
        assign endingoffsets endingoffsetsbytimestamp endingtimestamp failondataloss fetchoffset.
        groupidprefix kafkaconsumer. maxoffsetspertrigger maxrecordsperpartition maxtriggerdelay
        minoffsetspertrigger minpartitions startingoffsets startingoffsetsbytimestamp
        startingoffsetsbytimestampstrategy startingtimestamp subscribe subscribepattern
        """,
    "Spark's configuration": "spark.",
    "streaming queries": """
        asyncprogresstrackingcheckpointintervalms asyncprogresstrackingenabled checkpointlocation
        outputmode processingtime queryname trigger
        """,
    "Spark's console": "numrows truncate",
    "files and tables": """
        dateformat delimiter header ignorechanges ignoredeletes inferschema maxbytespertrigger
        maxfilespertrigger mergeschema multiline overwriteschema partitionoverwritemode path quote
        sep timestampformat txnappid txnversion
        """,
}


@cache
def _owners(*, of_options: bool) -> Mapping[str, str]:
    table = _OPTIONS if of_options else _SETTINGS
    return {word: whose for whose, names in reversed(list(table.items())) for word in names.split()}


def owner(name: str) -> str | None:
    """Whose a setting is, in words for a sentence; None if it is not known.

    ``name``: in lower case, without the prefix ``kafka.``, and no setting of the producer:
    librdkafka's has some whose names are a broker's, such as ``message.max.bytes``.
    """
    return _owner(name, _owners(of_options=False))


def source_owner(name: str) -> str | None:
    """Whose an option is that does not begin with ``kafka.``, likewise.

    It may be a setting of Kafka's whose prefix is missing; but those without a dot in their names,
    such as ``listeners``, may be anybody's.
    """
    return _owner(name, _owners(of_options=True)) or (owner(name) if "." in name else None)


def _owner(name: str, owners: Mapping[str, str]) -> str | None:
    # A whole name comes first: group.protocol is no broker's, though group.coordinator.threads is.
    parts = name.split(".")
    begins = [".".join(parts[:count]) + "." for count in range(len(parts) - 1, 0, -1)]
    return next((owners[word] for word in (name, *begins) if word in owners), None)
