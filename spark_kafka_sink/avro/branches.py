"""Which branch of a union the values of a column are written as."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_kafka_sink.avro import writers
from spark_kafka_sink.avro.writers import Writer


def best(fitting: Sequence[tuple[int, Writer]]) -> tuple[int, Writer]:
    """The index and writer of the branch that refuses values of the fewest fields.

    Of several, the one that converts the fewest fields; of several, the first.
    """
    return min(fitting, key=lambda each: (*_losses(each[1]), each[0]))


def _losses(writer: Writer) -> tuple[int, int]:
    every = list(_with_inner(writer))
    return sum(map(_refuses, every)), sum(map(_converts, every))


def _with_inner(writer: Writer) -> Iterator[Writer]:
    yield writer
    inner: list[Writer] = []
    if isinstance(writer, writers.Required | writers.Nullable):
        inner = [writer.inner]
    elif isinstance(writer, writers.Record):
        inner = [field for _, field in writer.fields]
    elif isinstance(writer, writers.Lists):
        inner = [part for _, part in writer.parts]
    elif isinstance(writer, writers.Members):
        inner = [member for _, member in writer.members]
    for each in inner:
        yield from _with_inner(each)


def _refuses(writer: Writer) -> bool:
    """Whether it refuses values that the column's type allows."""
    if isinstance(writer, writers.Required):
        return writer.is_nullable
    if isinstance(writer, writers.Integer):
        return writer.is_int
    if isinstance(writer, writers.Decimal):
        return writer.digits is not None
    return isinstance(writer, writers.FixedBytes | writers.Symbols | writers.Members)


def _converts(writer: Writer) -> bool:
    """Whether readers get values of another kind, or less precise ones."""
    if isinstance(writer, writers.Integer):
        return writer.ticks > 1
    if isinstance(writer, writers.Float):
        return not writer.dtype.startswith("f")
    return isinstance(writer, writers.Bytes) and writer.is_text_as_bytes
