"""[both] An Avro schema as a tree of objects, with its names resolved."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NoReturn

from spark_kafka_sink.errors import SchemaMismatch
from spark_kafka_sink.names import AVRO_PRIMITIVES, is_avro_name, is_full_avro_name

_LOGICAL_TYPES = {
    "int": {"date", "time-millis"},
    "long": {
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "timestamp-nanos",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "local-timestamp-nanos",
    },
    "bytes": {"decimal"},
    "fixed": {"decimal", "uuid"},
}


@dataclass
class Primitive:
    """``logical_type`` is None if Avro does not know it: readers then ignore it too."""

    type: str
    logical_type: str | None = None
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return _described(self.type, self.logical_type, self.precision, self.scale)


@dataclass
class Fixed:
    name: str
    size: int
    logical_type: str | None = None
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        base = f"fixed({self.size})"
        return _described(base, self.logical_type, self.precision, self.scale)


@dataclass
class Enum:
    name: str
    symbols: list[str]

    def __str__(self) -> str:
        return f"enum {self.name}"


@dataclass
class Array:
    items: Node

    def __str__(self) -> str:
        return "array"


@dataclass
class Map:
    values: Node

    def __str__(self) -> str:
        return "map"


@dataclass
class Union:
    branches: list[Branch]

    @property
    def null(self) -> int | None:
        """The index of the branch null."""
        for i, branch in enumerate(self.branches):
            if isinstance(branch, Primitive) and branch.type == "null":
                return i
        return None

    def __str__(self) -> str:
        return f"[{', '.join(str(branch) for branch in self.branches)}]"


@dataclass
class Field:
    """``default``: the value of its JSON, if it ``has_default``."""

    name: str
    type: Node
    aliases: list[str]
    has_default: bool = False
    default: Any = None


@dataclass
class Record:
    """``fields`` may contain the record itself, at any depth."""

    name: str
    fields: list[Field] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        return f"record {self.name}"


Branch = Primitive | Fixed | Enum | Array | Map | Record
Node = Branch | Union


def _described(base: str, logical_type: str | None, precision: int, scale: int) -> str:
    if logical_type == "decimal":
        return f"{base} (decimal({precision},{scale}))"
    return base if logical_type is None else f"{base} ({logical_type})"


def parse_schema(text: str, column: str) -> Node:
    """The schema in a JSON text. Raises SchemaMismatch if it is none; ``column`` is its column."""
    # A schema may be the name of a primitive type alone, without quotes.
    if text.strip() in AVRO_PRIMITIVES:
        return Primitive(text.strip())
    try:
        return _Parser().parse(json.loads(text), "")
    except json.JSONDecodeError as error:
        problem = f"it is not JSON: {error}"
    except RecursionError:
        problem = "it is nested too deeply"
    except ValueError as error:
        problem = str(error)
    raise SchemaMismatch(
        f"the schema of column {column} is not an Avro schema: {problem}; correct it"
    )


def _reject(problem: str) -> NoReturn:
    raise ValueError(problem)


def _shown(schema: Any) -> str:
    return json.dumps(schema)[:300]


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Branch] = {}

    def parse(self, schema: Any, namespace: str) -> Node:
        if isinstance(schema, str):
            return self._reference(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if not isinstance(schema, dict) or "type" not in schema:
            _reject(f"{_shown(schema)} is not a type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.parse(kind, namespace)
        return self._complex(schema, kind, namespace)

    def _complex(self, schema: dict[str, Any], kind: str, namespace: str) -> Branch:
        if kind == "array":
            return Array(self.parse(_required(schema, "items"), namespace))
        if kind == "map":
            return Map(self.parse(_required(schema, "values"), namespace))
        if kind in {"record", "error", "enum", "fixed"}:
            return self._definition(schema, kind, namespace)
        if kind in AVRO_PRIMITIVES:
            return Primitive(kind, *_logical_type(schema, kind, None))
        return self._reference(kind, namespace)

    def _reference(self, name: str, namespace: str) -> Branch:
        if name in AVRO_PRIMITIVES:
            return Primitive(name)
        full_name = f"{namespace}.{name}" if namespace and "." not in name else name
        definition = self._named.get(full_name) or self._named.get(name)
        if definition is None:
            _reject(f"the type {name} is not defined before it is used")
        return definition

    def _union(self, schemas: list[Any], namespace: str) -> Union:
        branches: dict[str, Branch] = {}
        for schema in schemas:
            branch = self.parse(schema, namespace)
            if isinstance(branch, Union):
                _reject("a union contains a union")
            name = _branch_name(branch)
            if name in branches:
                _reject(f"a union contains {name} twice")
            branches[name] = branch
        if not branches:
            _reject("a union has no branches")
        return Union(list(branches.values()))

    def _definition(self, schema: dict[str, Any], kind: str, namespace: str) -> Branch:
        name = _required(schema, "name")
        if not isinstance(name, str):
            _reject(f"{_shown(name)} is not a name")
        if "." not in name and (space := schema.get("namespace", namespace)):
            name = f"{space}.{name}"
        if not is_full_avro_name(name) or name in AVRO_PRIMITIVES:
            _reject(f"{name} is not a name")
        if kind == "fixed":
            size = _required(schema, "size")
            if not isinstance(size, int) or size < 0:
                _reject(f"the size of {name} is {_shown(size)}")
            return self._defined(Fixed(name, size, *_logical_type(schema, kind, size)))
        if kind == "enum":
            symbols = _list(schema, "symbols")
            if not all(map(is_avro_name, symbols)) or len(set(symbols)) < len(symbols):
                _reject(f"the enum {name} has a symbol twice, or one that is no name")
            return self._defined(Enum(name, symbols))
        if name in self._named:
            _reject(f"{name} is defined twice")
        record = Record(name)
        self._named[name] = record
        own_namespace = name.rpartition(".")[0]
        record.fields += [
            self._field(field, name, own_namespace) for field in _list(schema, "fields")
        ]
        names = [field.name for field in record.fields]
        if len(set(names)) < len(names):
            _reject(f"the record {name} has a field twice")
        return record

    def _defined(self, definition: Fixed | Enum) -> Branch:
        """The definition, which may be repeated, as in Java's Avro."""
        if self._named.setdefault(definition.name, definition) != definition:
            _reject(f"{definition.name} is defined twice")
        return definition

    def _field(self, schema: Any, record: str, namespace: str) -> Field:
        if not isinstance(schema, dict) or not is_avro_name(schema.get("name")):
            _reject(f"{_shown(schema)} is not a field of the record {record}")
        node = self.parse(_required(schema, "type"), namespace)
        aliases = _list(schema, "aliases") if "aliases" in schema else []
        return Field(schema["name"], node, aliases, "default" in schema, schema.get("default"))


def _branch_name(node: Branch) -> str:
    if isinstance(node, Primitive):
        return node.type
    return node.name if isinstance(node, Fixed | Enum | Record) else str(node)


def _required(schema: dict[str, Any], attribute: str) -> Any:
    if attribute not in schema:
        _reject(f"{_name_or_type(schema)} has no {attribute}")
    return schema[attribute]


def _list(schema: dict[str, Any], attribute: str) -> list[Any]:
    value = _required(schema, attribute)
    if not isinstance(value, list):
        _reject(f"{attribute} of {_name_or_type(schema)} is no list")
    return value


def _name_or_type(schema: dict[str, Any]) -> Any:
    return schema.get("name", schema.get("type"))


def _logical_type(
    schema: dict[str, Any], kind: str, size: int | None
) -> tuple[str | None, int, int]:
    """The logical type with a decimal's precision and scale; None if unknown or not valid."""
    name = schema.get("logicalType")
    if not isinstance(name, str) or name not in _LOGICAL_TYPES.get(kind, ()):
        return None, 0, 0
    if name != "decimal":
        return name, 0, 0
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None, 0, 0
    if not 0 <= scale <= precision or precision < 1:
        return None, 0, 0
    if size is not None and (size == 0 or 10**precision > 1 << (8 * size - 1)):
        return None, 0, 0
    return name, precision, scale
