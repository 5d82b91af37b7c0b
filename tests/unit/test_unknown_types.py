"""foreach_batch beside columns for whose types PySpark has no class."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkValueError
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import InvalidSchema
from spark_kafka_sink.spark.foreach_batch import _with_known_types

OPTIONS = {"kafka.bootstrap.servers": "host:9092", "topic": "t"}
UNKNOWN = None


class Frame:
    """What foreach_batch reads of a DataFrame: its columns, whose types PySpark knows or not."""

    def __init__(self, **types):
        self.types = types

    @property
    def schema(self):
        if UNKNOWN in self.types.values():
            raise PySparkValueError("CANNOT_PARSE_DATATYPE")
        return StructType([StructField(name, kind) for name, kind in self.types.items()])

    def select(self, names):
        names = [name.strip("`") for name in ([names] if isinstance(names, str) else names)]
        if not self.types.keys() >= set(names):
            raise AnalysisException("UNRESOLVED_COLUMN")
        return type(self)(**{name: self.types[name] for name in names})


class ClassicFrame(Frame):
    """Java knows the names without the types."""

    @property
    def _jdf(self):
        return self

    def columns(self):
        return list(self.types)


@pytest.fixture(params=[Frame, ClassicFrame], ids=["Connect", "classic"])
def frame(request):
    return request.param


def test_columns_that_are_not_written_may_have_any_type(frame):
    batch = frame(value=StringType(), at=UNKNOWN, key=StringType())
    written = _with_known_types(batch, parse(OPTIONS))
    assert set(written.schema.names) == {"value", "key"}


@pytest.mark.parametrize(
    ("column", "instead"),
    [("value", r"string\(value\) or to_json\(value\)"), ("at", r"timestamp\(at\)")],
)
def test_a_column_of_the_record_is_named_with_what_converts_it(frame, column, instead):
    batch = frame(**{"value": StringType(), "extra": UNKNOWN, column: UNKNOWN})
    with pytest.raises(InvalidSchema, match=f"column {column} has .* for instance {instead}$"):
        _with_known_types(batch, parse(OPTIONS | {"timestamp.column": "at"}))


def test_a_frame_whose_types_are_known_stays_as_it_is(frame):
    batch = frame(value=StringType(), other=StringType())
    assert _with_known_types(batch, parse(OPTIONS)) is batch
