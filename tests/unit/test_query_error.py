"""The sink's own error, found in what Spark says of a failed query."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import (
    InvalidSchema,
    KafkaSinkError,
    own_error,
    sink_error,
    sink_error_name,
)

TEXT = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback:
  File "writer.py", line 1, in write
spark_kafka_sink.errors.InvalidSchema: column value is missing
 SQLSTATE: 38000
=== Streaming Query ===
"""


def test_the_sinks_own_error_is_found():
    assert sink_error_name(TEXT) == "InvalidSchema"
    assert sink_error(TEXT) == "InvalidSchema: column value is missing"
    error = own_error(TEXT)
    assert type(error) is InvalidSchema
    assert str(error) == "column value is missing"


@pytest.mark.parametrize(
    "text", ["", "java.lang.OutOfMemoryError\n\tat x", "errors.InvalidSchema: x"]
)
def test_other_errors_are_not_the_sinks(text):
    assert sink_error_name(text) is None
    assert own_error(text) is None
    assert sink_error(text) == text.partition("\n")[0]


def test_what_a_function_of_python_raised_is_its_last_line():
    raised = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\n\n'
    text = f"[STREAM_FAILED] Reason: {raised}KeyError: 'a'\n\nDuring that, another:\n\n{raised}"
    assert sink_error(f"{text}x.Error: job aborted\n\tat y\n") == "x.Error: job aborted"
    assert sink_error(text) == "KeyError: 'a'"
    java = "py4j.protocol.Py4JJavaError: An error occurred while calling o8.x.\n: a.B: lost\n"
    assert sink_error(f"{text}{java}") == "a.B: lost"
    assert sink_error(raised) == raised.partition("\n")[0]
    assert sink_error(f"lost\n{text}") == "lost"


def test_an_error_of_another_version_is_one_of_the_sinks():
    error = own_error("spark_kafka_sink.errors.FromTheFuture: hello")
    assert type(error) is KafkaSinkError
    assert str(error) == "hello"
