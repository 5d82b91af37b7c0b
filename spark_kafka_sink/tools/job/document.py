"""YAML text -> plain data, with the line and column of everything in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from spark_kafka_sink.errors import InvalidConfiguration

#: where something is in a document, such as ("sink", "options", "kafka.linger.ms")
Path = tuple[str, ...]

_DEEPEST = 8
_QUOTED = re.compile(r" *'([^']*)'")
_SHOWN = re.compile(r"<[a-z ]+>|\W")
_NULL = "tag:yaml.org,2002:null"


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
    lines = [str(each) for each in sorted(set(mistakes))]
    count = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
    return InvalidConfiguration("\n".join([f"{count} in the configuration:", *lines]))


def is_options(path: Path) -> bool:
    """Whether the keys at ``path`` are options: names with dots, whose case does not matter."""
    return path in (("source", "options"), ("sink", "options"))


class Document:
    """A configuration as plain data: mappings, lists, and scalars as the text that was written.

    ``mistakes``: keys that occur twice or, unless they are options, have no value, and the like.
    ``data`` leaves them out.
    """

    def __init__(self, text: str, name: str, overrides: Iterable[str] = ()) -> None:
        """Raises InvalidConfiguration if the text is not YAML.

        ``name``: of the file, for error messages. ``overrides``: of the form ``sink.mode=format``.
        """
        self.mistakes: list[Mistake] = []
        self._file = Place(name, 1, 1)
        self._places: dict[Path, Place] = {(): self._file}
        self.data: dict[str, Any] = {}
        root = self._composed(text, self._file)
        if isinstance(root, yaml.MappingNode):
            self.data = self._plain(root, (), self._file)
        else:
            self.mistakes.append(Mistake(self._file, (), "the file must be a mapping of keys"))
        for override in overrides:
            self.override(override)

    def __contains__(self, path: Path) -> bool:
        return path in self._places

    def place(self, path: Path) -> Place:
        """Where ``path`` is, or else what would contain it."""
        while path not in self._places:
            path = path[:-1]
        return self._places[path]

    def mistake(self, path: Path, what: str) -> Mistake:
        return Mistake(self.place(path), path, what)

    def _composed(self, text: str, origin: Place) -> yaml.Node | None:
        try:
            return yaml.compose(text, yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            place = _place(error.problem_mark or error.context_mark, origin)
            raise invalid([Mistake(place, (), f"not YAML: {_problem(error)}")]) from None
        except yaml.reader.ReaderError as error:
            what = f"not YAML: character {error.position + 1} is not allowed"
            raise invalid([Mistake(origin, (), what)]) from None

    def _plain(self, node: yaml.Node, path: Path, origin: Place) -> Any:
        """The data of a node; notes the places of everything below it."""
        if len(path) > _DEEPEST:  # also if it contains itself through an alias
            raise invalid([Mistake(self.place(path), path, "nested too deeply")])
        if isinstance(node, yaml.ScalarNode):
            return None if node.tag == _NULL else node.value
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(each, (*path, str(i)), origin) for i, each in enumerate(node.value)]
        data: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                place = _place(key.start_mark, origin)
                self.mistakes.append(Mistake(place, path, "a key must be text"))
                continue
            below = (*path, key.value)
            earlier = _same(key.value, data, path)
            if earlier is not None:
                place = _place(key.start_mark, origin)
                as_what = "" if earlier == key.value else f" as {earlier}"
                what = f"already set at {self._places[(*path, earlier)]}{as_what}; keep one"
                self.mistakes.append(Mistake(place, below, what))
                continue
            self._places[below] = _place(key.start_mark, origin)
            data[key.value] = self._plain(value, below, origin)
            if data[key.value] is None and not is_options(path):
                self.mistakes.append(self.mistake(below, "has no value; leave it out"))
        return {key: value for key, value in data.items() if value is not None}

    def override(self, override: str, argument: str | None = None) -> None:
        """Replace a value, as ``--set`` does; or another ``argument`` of the command."""
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
        replaced = _same(path[-1], parent, path[:-1])
        if replaced is not None:
            del parent[replaced]
            del self._places[(*path[:-1], replaced)]
        # Places inside a mapping that is replaced are gone.
        self._places = {p: place for p, place in self._places.items() if p[: len(path)] != path}
        for depth in range(1, len(path)):
            self._places.setdefault(path[:depth], origin)
        self._places[path] = origin
        # {...} is YAML, as in --set 'trigger={once: true}'; everything else is text.
        node = self._composed(text, origin) if text.startswith("{") else None
        parent[path[-1]] = text if node is None else self._plain(node, path, origin)


def _same(key: str, data: Mapping[str, Any], path: Path) -> str | None:
    """The key of ``data``, at ``path``, that means the same: names of options ignore case."""
    if not is_options(path):
        return key if key in data else None
    return next((each for each in data if each.lower() == key.lower()), None)


def _path(name: str) -> Path:
    """The path of a key; everything after ``options`` is one name."""
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
    # What stands in quotes may be a part of a password that needs quotes itself, unless it is the
    # name of a token, or a single character.
    words = [error.context, error.problem]
    text = ", ".join(each for each in words if each)
    return _QUOTED.sub(lambda found: found[0] if _SHOWN.fullmatch(found[1]) else "", text)
