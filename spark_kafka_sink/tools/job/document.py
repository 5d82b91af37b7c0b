"""A configuration file as plain data, with the line and column of everything in it.

``References`` then replaces ``${env:NAME}``, ``${file:PATH}`` and, on Databricks,
``${secrets:SCOPE/KEY}`` by their values. Secrets must be written in this way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import yaml

from spark_kafka_sink.config import client_settings, registry_options
from spark_kafka_sink.config.option import PREFIX
from spark_kafka_sink.config.option_table import (
    DEAD_LETTER_TOPIC,
    EXACTLY_ONCE_LEDGER_TOPIC,
    TOPIC,
)
from spark_kafka_sink.config.registry_options import REGISTRY_PREFIX
from spark_kafka_sink.errors import InvalidConfiguration
from spark_kafka_sink.secret import Secret, read_secret

#: where something is in a document, such as ("sink", "options", "kafka.linger.ms")
Path = tuple[str, ...]

CREATE_TOPICS = ("sink", "create_topics")
#: the options that name topics to create, which are keys below ``CREATE_TOPICS``
CREATED = (TOPIC.name, DEAD_LETTER_TOPIC.name, EXACTLY_ONCE_LEDGER_TOPIC.name)

_DEEPEST = 8
_QUOTED = re.compile(r" *'([^']*)'")
_SHOWN = re.compile(r"<[a-z ]+>|\W")
_NULL, _MERGE = "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge"
#: those that change nothing, as values are text
_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("bool", "float", "int", "map", "null", "seq", "str", "timestamp", "value")
) | {_MERGE}


@dataclass(frozen=True, order=True)
class Place:
    """A line and column of a file, both from 1; or a ``--set``, which has neither."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(frozen=True, order=True)
class Mistake:
    """An error for the user to correct: where it is, and what is allowed instead."""

    place: Place
    path: Path
    what: str

    def __str__(self) -> str:
        subject = f"{'.'.join(self.path)}: " if self.path else ""
        return f"{self.place}: {subject}{self.what}"


def invalid(mistakes: Iterable[Mistake]) -> InvalidConfiguration:
    """One error for all mistakes, in the order of the file."""
    lines = [str(mistake) for mistake in sorted(set(mistakes))]
    count = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
    return InvalidConfiguration("\n".join([f"{count} in the configuration:", *lines]))


def is_options(path: Path) -> bool:
    """Whether the keys at ``path`` are options: names with dots, whose case does not matter."""
    return path in (("source", "options"), ("sink", "options"))


class Document:
    """A configuration as plain data: mappings, lists, and scalars as the text that was written.

    ``mistakes``: for instance, a key that occurs twice, or one that has no value. ``data`` leaves
    these keys out.
    """

    def __init__(self, text: str, name: str, overrides: Iterable[str] = ()) -> None:
        """Raises InvalidConfiguration if the text is not YAML.

        ``name``: of the file, for error messages. ``overrides``: of the form ``sink.mode=format``.
        """
        self.mistakes: list[Mistake] = []
        self._file = Place(name, 1, 1)
        self._places: dict[Path, Place] = {(): self._file}
        self.data: dict[str, Any] = {}
        root = self._compose(text, self._file)
        if isinstance(root, yaml.MappingNode):
            self.data = self._plain(root, (), self._file)
        else:
            self.mistakes.append(Mistake(self._file, (), "the file must be a mapping of keys"))
        for override in overrides:
            self.override(override)

    def __contains__(self, path: Path) -> bool:
        return path in self._places

    def place(self, path: Path) -> Place:
        """Where ``path`` is, or else the innermost mapping that would contain it."""
        while path not in self._places:
            path = path[:-1]
        return self._places[path]

    def mistake(self, path: Path, what: str) -> Mistake:
        return Mistake(self.place(path), path, what)

    def _compose(self, text: str, origin: Place) -> yaml.Node | None:
        try:
            return yaml.compose(text, yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            place = _place(error.problem_mark or error.context_mark, origin)
            raise invalid([Mistake(place, (), f"not YAML: {_problem(error)}")]) from None
        except yaml.reader.ReaderError as error:
            what = f"not YAML: character {error.position + 1} is not allowed"
            raise invalid([Mistake(origin, (), what)]) from None

    def _plain(self, node: yaml.Node, path: Path, origin: Place) -> Any:
        """The data of a node; records the places of everything in it."""
        if len(path) > _DEEPEST:  # for instance, it contains itself through an alias
            raise invalid([Mistake(self.place(path), path, "nested too deeply")])
        if isinstance(node, yaml.ScalarNode):
            return None if node.tag == _NULL else node.value
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(item, (*path, str(i)), origin) for i, item in enumerate(node.value)]
        data: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in _TAGS:
                place = _place(key.start_mark, origin)
                self.mistakes.append(Mistake(place, path, "a key must be text"))
                continue
            key_path = (*path, key.value)
            if key.tag == _MERGE:
                what = "merge keys are not supported; repeat the keys here"
                self.mistakes.append(Mistake(_place(key.start_mark, origin), key_path, what))
                continue
            earlier = _equal_key(key.value, data, path)
            if earlier is not None:
                place = _place(key.start_mark, origin)
                spelling = "" if earlier == key.value else f" as {earlier}"
                what = f"already set at {self._places[(*path, earlier)]}{spelling}; keep one"
                self.mistakes.append(Mistake(place, key_path, what))
                continue
            self._places[key_path] = _place(key.start_mark, origin)
            what = _unusable(value, path)
            data[key.value] = None if what else self._plain(value, key_path, origin)
            if what:
                self.mistakes.append(self.mistake(key_path, what))
        return {key: value for key, value in data.items() if value is not None}

    def override(self, override: str, argument: str | None = None) -> None:
        """Replace a value. ``argument``: the one that does so, if it is not ``--set``."""
        name, is_assignment, text = override.partition("=")
        origin = Place(argument or f"--set {name}")
        if not is_assignment or not all(name.split(".")):
            what = "write --set KEY=VALUE, such as --set sink.options.topic=numbers"
            self.mistakes.append(Mistake(Place("--set"), (), what))
            return
        path = _path(name)
        parent = self.data
        for key in path[:-1]:
            parent = parent.setdefault(key, {})
            if not isinstance(parent, dict):
                self.mistakes.append(Mistake(origin, path, f"{key} is not a mapping"))
                return
        replaced = _equal_key(path[-1], parent, path[:-1])
        if replaced is not None:
            del parent[replaced]
        # Drop the places and the mistakes of what is replaced.
        size, at = len(path), _folded(path)
        self._places = {p: place for p, place in self._places.items() if _folded(p[:size]) != at}
        self.mistakes = [m for m in self.mistakes if _folded(m.path[:size]) != at]
        for depth in range(1, len(path)):
            self._places.setdefault(path[:depth], origin)
        self._places[path] = origin
        # {...} is YAML, as in --set 'trigger={once: true}', but that of an option may be JSON.
        is_text = is_options(path[:-1]) or path == ("sql",) or not text.startswith("{")
        node = None if is_text else self._compose(text, origin)
        parent[path[-1]] = text if node is None else self._plain(node, path, origin)


def _unusable(value: yaml.Node, path: Path) -> str:
    """Why a value in the mapping at ``path`` is left out, or ""."""
    if value.tag not in _TAGS:  # not shown: it may be a password without quotes
        return (
            "has a YAML tag, which is not supported; write ${env:NAME} for an environment "
            "variable, and put a text that begins with ! in quotes"
        )
    if value.tag == _NULL:
        instead = ", or write '' for an empty one" if is_options(path) else ""
        return f"has no value; leave it out{instead}"
    if is_options(path) and not isinstance(value, yaml.ScalarNode):
        return (
            "must be text; put JSON in quotes, '{...}', and write names in full, such as "
            "kafka.linger.ms"
        )
    return ""


def _equal_key(key: str, data: Mapping[str, Any], path: Path) -> str | None:
    """The key of ``data``, at ``path``, that equals ``key``; the case of options is ignored."""
    if not is_options(path):
        return key if key in data else None
    return next((name for name in data if name.lower() == key.lower()), None)


def _folded(path: Path) -> Path:
    """The path, with the name of an option in lower case."""
    return (*path[:-1], path[-1].lower()) if is_options(path[:-1]) else path


def _path(name: str) -> Path:
    """The path of a key; everything after ``options`` is one name, as are topics to create."""
    for topic in CREATED:
        start = f"{'.'.join(CREATE_TOPICS)}.{topic}"
        if f"{name}.".startswith(f"{start}."):
            rest = name.removeprefix(start)[1:]
            return (*CREATE_TOPICS, topic, *filter(None, rest.split(".", 1)))  # config.<name>
    keys = tuple(name.split("."))
    for size in range(len(keys)):
        if is_options(keys[:size]):
            return (*keys[:size], ".".join(keys[size:]))
    return keys


def _place(mark: yaml.Mark | None, origin: Place) -> Place:
    if mark is None or not origin.line:
        return origin
    return Place(origin.source, mark.line + 1, mark.column + 1)


def _problem(error: yaml.MarkedYAMLError) -> str:
    # Quoted text may be part of a password that itself needs quotes. Names of tokens and single
    # characters are safe to show.
    words = [error.context, error.problem]
    text = ", ".join(word for word in words if word)
    return _QUOTED.sub(lambda match: match[0] if _SHOWN.fullmatch(match[1]) else "", text)


# --- references -----------------------------------------------------------------------------------

_REFERENCE = re.compile(r"\$\{(env|file|secrets):([^{}]+)\}")
_FORMS = "${env:NAME}, ${file:PATH} or, on Databricks, ${secrets:SCOPE/KEY}"
_BEGINNINGS = ("${env", "${file", "${secrets")
_SCOPE_REFERENCE = "${secrets:"  # a secret wherever it occurs

# The secrets among the options of other sources that Spark recognises (spark.redaction.regex), and
# those that it misses: Azure's connection strings, account keys and shared access signatures, and
# the keys of Google's and Snowflake's sources.
_SOUNDS_SECRET = re.compile(
    r"(?i)secret|password|passphrase|token|access[.]?key|account[._]?key|private[._]?key"
    r"|connection[._]?string|[.]sas[.]|(^|[.])credentials$"
)


class References:
    """Replaces the references in a document, and rejects secrets in plain text.

    ``data``: the document's, with values instead of references, and every secret as a ``Secret``.
    ``unresolved``: what has no value because of a mistake; it is left out of ``data``.
    """

    def __init__(self, document: Document, environment: Mapping[str, str] = os.environ) -> None:
        self.mistakes: list[Mistake] = []
        self.unresolved: set[Path] = set()
        self._document = document
        self._environment = environment
        self.data: dict[str, Any] = self._resolve(document.data, ())

    def _resolve(self, data: Any, path: Path) -> Any:
        if isinstance(data, dict):
            values = {key: self._resolve(value, (*path, key)) for key, value in data.items()}
            return {key: v for key, v in values.items() if (*path, key) not in self.unresolved}
        if isinstance(data, list):
            return [self._resolve(value, (*path, str(i))) for i, value in enumerate(data)]
        if path == ("sql",):  # Spark replaces variables there itself
            return data
        try:
            return self._value(data, path)
        except ValueError as error:
            self.mistakes.append(self._document.mistake(path, str(error)))
            self.unresolved.add(path)
            return None

    def _value(self, text: str, path: Path) -> str:
        """Raises ValueError with a sentence that does not show the text."""
        literal = _REFERENCE.sub("", text)
        if any(beginning in literal for beginning in _BEGINNINGS):
            raise ValueError(f"is not a reference of the form {_FORMS}")
        must_hide = _holds_secret(path)
        if must_hide and literal.strip():
            raise ValueError(_literal_secret(path))
        value = _REFERENCE.sub(lambda match: self._referenced(match[1], match[2].strip()), text)
        if must_hide:
            return read_secret(value)
        return Secret(value.strip()) if _SCOPE_REFERENCE in text else value

    def _referenced(self, kind: str, name: str) -> str:
        if kind == "env":
            if not self._environment.get(name):
                state = "empty" if name in self._environment else "not set"
                raise ValueError(f"the environment variable {name} is {state}")
            return self._environment[name]
        if kind == "secrets":
            scope, _, key = name.partition("/")
            if not scope or not key:
                raise ValueError(f"is not a reference of the form {_FORMS}")
            return _databricks_secret(scope, key)
        try:
            text = read_secret(FilePath(name).read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise ValueError(f"the file {name} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError(f"the file {name} is not UTF-8") from None
        if not text.strip("\r\n"):
            raise ValueError(f"the file {name} is empty")
        return text


def _holds_secret(path: Path) -> bool:
    if not is_options(path[:-1]):
        return False
    name = path[-1].lower()
    if name.startswith(PREFIX):
        return client_settings.is_secret(name.removeprefix(PREFIX))
    if name.startswith(REGISTRY_PREFIX):
        setting = name.removeprefix(REGISTRY_PREFIX)
        if registry_options.is_secret(setting):
            return True
    return path[0] == "source" and bool(_SOUNDS_SECRET.search(name))


def _literal_secret(path: Path) -> str:
    advice = f"is a secret: write {_FORMS} instead of the value, which is not shown here"
    if path[-1].lower() == f"{PREFIX}sasl.jaas.config":
        return (
            f"{advice}. The reference must be the whole value; or leave it out, and set "
            f"{PREFIX}sasl.username and {PREFIX}sasl.password"
        )
    return advice


def _databricks_secret(scope: str, key: str) -> str:
    """A secret of a scope, by ``dbutils.secrets.get``.

    Raises ValueError with a sentence that hides it.
    """
    try:
        from pyspark.dbutils import DBUtils  # type: ignore[import-not-found]
    except ImportError:
        raise ValueError(
            "${secrets:SCOPE/KEY} works only on Databricks (pyspark.dbutils is missing); write "
            "${env:NAME} or ${file:PATH} here"
        ) from None
    from pyspark.sql import SparkSession

    from spark_kafka_sink.spark.spark_errors import SPARK_ERRORS, reason

    try:
        # On Databricks, this is the session that exists already.
        secret: str = DBUtils(SparkSession.builder.getOrCreate()).secrets.get(scope, key)
    except SPARK_ERRORS as error:
        raise ValueError(f"Databricks does not return the secret: {reason(error)}") from None
    if not secret:
        raise ValueError(f"the secret {scope}/{key} is empty")
    return secret
