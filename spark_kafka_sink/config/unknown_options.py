"""[both] What an option that the sink does not have is: a misspelt one, or somebody else's."""

from __future__ import annotations

from collections.abc import Collection

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
    from spark_kafka_sink.config.foreign_names import owner

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
    from spark_kafka_sink.config.foreign_names import owner

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
    from spark_kafka_sink.config.foreign_names import source_owner

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
