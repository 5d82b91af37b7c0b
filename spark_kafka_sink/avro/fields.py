"""Which field of a struct becomes which field of an Avro record."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.avro.parsed import Field, Record


def match_fields(
    record: Record, names: Sequence[str], path: str, problems: list[str]
) -> list[tuple[Field, int | None]]:
    """Each field of the record with the position of its name; None: its default is written.

    A name is the same, an alias, or the same but for its case. Adds a sentence for each field
    without a partner.
    """
    taken: dict[int, str] = {}
    found: dict[str, int] = {}
    for accepts in (_same, _alias, _same_but_for_case):
        for field in record.fields:
            if field.name in found:
                continue
            free = [i for i, name in enumerate(names) if i not in taken and accepts(field, name)]
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
        if field.name not in found and not field.has_default:
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


def _same(field: Field, name: str) -> bool:
    return name == field.name


def _alias(field: Field, name: str) -> bool:
    return name in field.aliases


def _same_but_for_case(field: Field, name: str) -> bool:
    return name.lower() == field.name.lower()
