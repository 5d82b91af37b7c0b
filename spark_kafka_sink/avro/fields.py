"""Which field of a struct becomes which field of an Avro record."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.avro.parsed import Field, Record, Union


def match_fields(
    record: Record, names: Sequence[str], path: str, problems: list[str]
) -> list[tuple[Field, int | None]]:
    """Each field of the record with the position of its name.

    None: its default is written, or null if it has none.
    A name is the same, an alias, or the same but for its case. Adds a sentence for each field
    without a partner.
    """
    taken: dict[int, str] = {}
    found: dict[str, int] = {}
    exact = _positions(names)
    lower = _positions([name.lower() for name in names])
    for positions, accepted in (
        (exact, lambda field: [field.name]),
        (exact, lambda field: field.aliases),
        (lower, lambda field: [field.name.lower()]),
    ):
        for field in record.fields:
            if field.name in found:
                continue
            fitting = {i for name in accepted(field) for i in positions.get(name, ())}
            free = sorted(i for i in fitting if i not in taken)
            if len(free) > 1:
                those = ", ".join(names[i] for i in free)
                problems.append(
                    f"{path}.{field.name}: several fields of the column fit it: {those}; rename "
                    "the one that is meant, and drop the others"
                )
            if free:
                found[field.name] = free[0]
                taken.update(dict.fromkeys(free, field.name))
    matched: list[tuple[Field, int | None]] = []
    for field in record.fields:
        if field.name not in found and not field.has_default and not _may_be_null(field):
            problems.append(
                f"{path}.{field.name}: the schema has this field without a default, the column "
                "does not have it; add it to the column, or give it a default in the schema"
            )
        else:
            matched.append((field, found.get(field.name)))
    problems += [
        f"{path}.{name}: the column has this field, the schema does not; add it to the schema, or "
        "drop it from the column"
        for i, name in enumerate(names)
        if i not in taken
    ]
    return matched


def _may_be_null(field: Field) -> bool:
    return isinstance(field.type, Union) and field.type.null is not None


def _positions(names: Sequence[str]) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        positions.setdefault(name, []).append(i)
    return positions
