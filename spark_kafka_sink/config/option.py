"""[both] Option: everything about one option, and how its text is read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from numbers import Real
from typing import Generic, TypeVar, cast
from urllib.parse import parse_qs, unquote

from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.names import is_full_avro_name, is_topic_name, topic_name_rule
from spark_kafka_sink.secret import PEM_BEGIN, Secret

#: prefix of the Kafka client's settings
PREFIX = "kafka."

T = TypeVar("T")

#: schemes of URIs that pyarrow.fs.FileSystem.from_uri supports, and Hadoop's alias of one
_SCHEMES = ("abfs", "abfss", "file", "gcs", "gs", "hdfs", "s3", "viewfs")
_OTHER_SCHEMES = {"s3a": "s3"}
# Where Hadoop's configuration names the place if the URI does not.
_WITH_DEFAULT_PLACE = ("hdfs", "viewfs")
# Its scheme, authority, and the rest. A scheme of one letter is a drive of Windows, as in Hadoop.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//[^/?#]*)?(.*)", re.DOTALL)
# In their URIs, the part before the @ may be a container.
_AZURE = ("abfs", "abfss")
_SECRETS_IN_QUERIES = frozenset({"client_secret", "sig"})

# Pasted text may have them; they are not white space to Python.
_INVISIBLE = re.compile("[\u200b\ufeff]")
# As Java reads a server: any protocol may precede it, and an IPv6 address needs no brackets.
_SERVER = re.compile(
    r"(?:[a-z][\w+.-]*://)?(?:\[([\w.:%-]+)\]|([\w.%-]+|[\w.:%-]+(?=:)))(?::([0-9]{1,5}))?",
    re.ASCII | re.IGNORECASE,
)
_DEFAULT_PORT = 9092  # librdkafka's; Java requires a port
_MAX_PORT = 2**16 - 1
_MAX_INT = 2**31 - 1

_SEPARATORS = re.compile(r"[^a-z0-9]")

_MS_PER_UNIT = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


class ContradictoryOption(InvalidOption):
    """Options contradict each other, or lack one; without ``option``, the others do not.

    Raised while options are read; users see an InvalidOption.
    """


class Feature(Enum):
    """What an option may be for alone."""

    EXACTLY_ONCE = auto()
    REGISTRY = auto()


@dataclass
class Notices:
    """What the user should know about options that are accepted; one warning per query says it.

    ``ignored``: the names of options without an effect, by whose they are or why, such as ``Kafka's
    consumer``. ``sentences``: what other options cost.
    """

    ignored: dict[str, list[str]] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)

    def ignore(self, name: str, owner: str) -> None:
        """``name``: as the user wrote it, such as ``kafka.group.id``."""
        self.ignored.setdefault(owner, []).append(name)

    def warn(self, sentence: str) -> None:
        """``sentence``: without a full stop at its end."""
        self.sentences.append(sentence)

    def without(
        self, settings: Mapping[str, str], names: Iterable[str], reason: str
    ) -> dict[str, str]:
        """``settings`` without these, named without ``kafka.``, which are noted as ignored."""
        ignored = sorted(names)
        for name in ignored:
            self.ignore(PREFIX + name, reason)
        return {name: value for name, value in settings.items() if name not in ignored}

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence about all ignored options, if there are any, then the others."""
        if not self.ignored:
            return tuple(self.sentences)
        parts = [f"{', '.join(names)} ({owner})" for owner, names in self.ignored.items()]
        return (f"these options have no effect on this sink: {'; '.join(parts)}", *self.sentences)


def check_not_empty(option: str, value: str) -> None:
    """Raise InvalidOption if there is only white space."""
    if not value.strip():
        raise InvalidOption(f"{option} is empty; set it, or remove it", option=option)


def check_file_name(option: str, value: str, instead: str) -> None:
    """Raise InvalidOption for PEM text; ``instead``: where to write it."""
    if PEM_BEGIN in value:
        raise InvalidOption(
            f"{option} is PEM text, not the name of a file (it is not shown); write it to "
            f"{instead}",
            option=option,
        )


def nearest_in_range(name: str, number: int, low: int, high: int, notices: Notices) -> int:
    """The number, or the nearest one that this client allows, with a warning."""
    nearest = min(max(number, low), high)
    if nearest == number:
        return number
    # The largest numbers mean that there is no limit; nobody sees a difference.
    if number < low or number < _MAX_INT:
        notices.warn(f"{name}={number} is not between {low} and {high}; {nearest} applies")
    return nearest


@dataclass(frozen=True)
class Option(Generic[T]):
    """One entry of the option table."""

    name: str
    #: Turns stripped text into a value; its ValueError is a sentence that starts with the text.
    parser: Callable[[str], T]
    #: None only if the option is required, or T includes None
    default: str | None
    meaning: str
    minimum: int | None = None
    maximum: int | None = None
    java_name: str | None = None
    is_required: bool = False
    #: without it, the option has no effect and is rejected
    only_with: Feature | None = None
    #: for docs/options.md: what applies instead of a default
    if_absent: str = "-"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,) if self.java_name is None else (self.name, self.java_name)

    @property
    def description(self) -> str:
        """``meaning``, plus the names and limits in the other fields."""
        parts = [self.meaning]
        if self.java_name is not None:
            parts.append(f"Java's name, `{self.java_name}`, works too.")
        if self.minimum:
            parts.append(f"At least {self.minimum}.")
        return " ".join(parts)

    def read(self, texts: Mapping[str, str], notices: Notices) -> T:
        """Its value in ``texts``, whose names are in lower case; raises InvalidOption."""
        name = self._name_in(texts) or self.name
        text = texts[name.lower()].strip() if name.lower() in texts else self.default
        if self.is_required and not text:
            bare = self.name.removeprefix(PREFIX)
            hint = f" {bare} without {PREFIX} has no effect." if bare in texts else ""
            raise InvalidOption(f"option {self.name} is required: {self.meaning}{hint}")
        if text is None:
            return cast("T", None)
        try:
            value = self.parser(text)
        except ValueError as error:
            raise InvalidOption(f"{name}={error}", option=name) from None
        return self._in_range(name, value, notices)

    def is_set(self, texts: Mapping[str, str]) -> bool:
        return self._name_in(texts) is not None

    def _name_in(self, texts: Mapping[str, str]) -> str | None:
        names = [name for name in self.names if name.lower() in texts]
        if len({texts[name.lower()].strip() for name in names}) > 1:
            raise InvalidOption(f"{' and '.join(names)} set the same option; remove one")
        return names[-1] if names else None

    def _in_range(self, name: str, value: T, notices: Notices) -> T:
        low, high = self.minimum, self.maximum
        if low is None or high is None or not isinstance(value, int):
            return value
        if low <= value <= high:
            return value
        if value < 0 or not name.startswith(PREFIX):
            raise InvalidOption(f"{name}={value} is not between {low} and {high}", option=name)
        return cast("T", nearest_in_range(name, value, low, high, notices))


@dataclass(frozen=True)
class OptionValues:
    """The values of options, by name; ``values[OPTION]`` has the type that its entry says."""

    by_name: Mapping[str, object]

    def __getitem__(self, option: Option[T]) -> T:
        return cast("T", self.by_name[option.name])


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """The options as Spark passes them to a format: as text, without those that are None.

    Raises InvalidOption for a name of another type, and for what is no mapping.
    """
    if not isinstance(options, Mapping):
        raise InvalidOption(
            f"the options are of type {type(options).__name__}, not a dictionary of names and "
            "values; Spark's foreachBatch needs foreach_batch(options), not foreach_batch"
        )
    for name in options:
        if not isinstance(name, str):
            raise InvalidOption(f"the name of an option is {name!r}, of type {type(name).__name__}")
    return {name: Secret(_text(value)) for name, value in options.items() if value is not None}


def check_type(name: str, value: object) -> None:
    """Raise InvalidOption, without the value, for one that Spark would turn into its repr."""
    if value is None or isinstance(value, str | Real) or _is_bool(value) or _is_path(value):
        return
    raise InvalidOption(
        f"the value of {name} is of type {type(value).__name__}; allowed: str, bool, int, "
        "float, a path, or None for an option that is not set",
        option=name,
    )


def _text(value: object) -> str:
    if _is_bool(value):
        return "true" if value else "false"
    # Of an enumeration, str() would be the name.
    return str.__str__(value) if isinstance(value, str) else str(value)


def _is_bool(value: object) -> bool:
    # Numbers and booleans may be numpy's: Spark takes these for the format.
    return type(value).__name__ in ("bool", "bool_")


def _is_path(value: object) -> bool:
    return isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)


def any_text(text: str) -> str:
    return text


def server_list(text: str) -> str:
    """``host:port,host:port``, however it was written. No ValueError shows credentials."""
    if "@" in text or "=" in text:
        raise ValueError(
            "[hidden] is not a list of servers: it contains @ or =, so it may contain a secret; "
            "write host:port, host:port, ..., and set a login with kafka.sasl.*"
        )
    entries = [entry.strip() for entry in _INVISIBLE.sub("", text).split(",")]
    if not any(entries):
        raise ValueError(f"{text!r} names no server; write host:port, host:port, ...")
    return ",".join(dict.fromkeys(_server(entry) for entry in entries if entry))


def _server(text: str) -> str:
    matched = _SERVER.fullmatch(text)
    host = matched and (matched[1] or matched[2])
    port = int((matched and matched[3]) or _DEFAULT_PORT)
    if not host or not _is_host(host) or not 0 < port <= _MAX_PORT:
        raise ValueError(
            f"{text!r} is not of the form host:port, with a port from 1 to {_MAX_PORT}; write "
            "host:port, host:port, ..."
        )
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_host(text: str) -> bool:
    from ipaddress import IPv6Address

    if ":" not in text:
        return not text.isdigit()  # a port alone
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def record_name(text: str) -> str:
    if not is_full_avro_name(text):
        raise ValueError(
            f"{text!r} is not a name of a record: it and its namespace consist of letters, digits "
            "and underscores, with dots between them"
        )
    return text


def whole_number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def true_or_false(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def file_path(text: str) -> str | None:
    """The path that a path or a ``file:`` URI names; None for the URI of anything else.

    As in Hadoop's Path, ``file:/x`` and ``file:///x`` are the same, and ``#`` and ``?`` belong to
    the path. As in RFC 8089, ``%20`` is a space.
    """
    uri = _URI.fullmatch(text)
    if uri is None:
        return text
    if uri[1].lower() != "file" or uri[2] not in (None, "//") or not uri[3].startswith("/"):
        return None
    return "/" + unquote(uri[3]).lstrip("/")


def folder(text: str) -> str:
    """An absolute path, or a URI that pyarrow supports. No ValueError shows credentials."""
    local = file_path(text)
    if local is not None and local.startswith("/"):
        return local
    uri = _URI.fullmatch(text)
    if uri is None or (uri[1].lower() == "file" and uri[2] in (None, "//")):
        raise ValueError(f"{text!r} is neither an absolute path nor a URI of one")
    scheme = _OTHER_SCHEMES.get(uri[1].lower(), uri[1].lower())
    # The text after an unknown scheme may contain credentials, too.
    if scheme not in _SCHEMES:
        raise ValueError(
            f"'{scheme}:...' is not in storage that Python on the driver can reach: use a path on "
            "the driver's machine, on Databricks that of a volume (/Volumes/...), or a URI that "
            f"begins with {', '.join(_SCHEMES)}"
        )
    authority, path = uri[2] or "//", uri[3]
    if _has_credentials(scheme, f"{authority[2:]}{path}"):
        raise ValueError(
            f"'{scheme}://...' contains credentials, which logs and plans would show. Remove them "
            "from the URI, and provide them to the process: in its environment, or as a role of "
            "its machine"
        )
    if scheme == "file":
        raise ValueError(f"{text!r} names a machine; write three slashes before the path")
    if authority == "//" and scheme not in _WITH_DEFAULT_PLACE:
        raise ValueError(
            f"{text!r} names no bucket or container: write two slashes and its name after {scheme}:"
        )
    if authority == "//" and not path.startswith("/"):
        raise ValueError(f"{text!r} has no absolute path; write {scheme}:/ before it")
    if "#" in path:
        raise ValueError(f"{text!r} contains #, and pyarrow ignores what follows it; leave it out")
    return f"{scheme}:{authority}{path}"


def _has_credentials(scheme: str, rest: str) -> bool:
    place, _, query = rest.partition("?")
    user, at, host = place.partition("/")[0].rpartition("@")
    if at and (scheme not in _AZURE or ":" in user):
        return True
    # A password may contain a slash, so that only its beginning is here.
    _, colon, port = host.rpartition(":")
    is_password = bool(colon) and not port.isdecimal()
    return is_password or not _SECRETS_IN_QUERIES.isdisjoint(parse_qs(query))


def one_of(*words: str) -> Callable[[str], str]:
    def parser(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is not {' or '.join(words)}")
        return text

    return parser


def duration_ms(text: str) -> int:
    matched = re.fullmatch(r"([0-9]{1,9})\s*(ms|s|m|min|h)", text)
    if not matched:
        raise ValueError(f"{text!r} is not a duration such as 30s, 10m or 1h")
    return int(matched[1]) * _MS_PER_UNIT[matched[2]]


def topic_name(text: str) -> str:
    if not is_topic_name(text):
        raise ValueError(topic_name_rule(text))
    return text


def function_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text):
        raise ValueError(f"{text!r} is not of the form package.module:function")
    return text


def variable_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII):
        raise ValueError(f"{text!r} is not the name of an environment variable")
    return text


def letters(name: str) -> str:
    """A name without its separators, in lower case."""
    return _SEPARATORS.sub("", name.lower())


def most_similar(name: str, known: Iterable[str], cutoff: float) -> str | None:
    """The known name whose letters are most similar; ``cutoff``: how similar at least, up to 1."""
    import difflib  # needed only after a mistake

    by_letters = {letters(candidate): candidate for candidate in sorted(known)}
    similar = difflib.get_close_matches(letters(name), by_letters, n=1, cutoff=cutoff)
    return by_letters[similar[0]] if similar else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean ...?`` with the most similar known name, or nothing."""
    import difflib  # needed only after a mistake

    similar = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {similar[0]}?" if similar else ""
