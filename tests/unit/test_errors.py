from __future__ import annotations

import inspect
import pickle
import threading

import pytest
from pyspark.serializers import CloudPickleSerializer

import spark_kafka_sink
from spark_kafka_sink import errors, foreach_batch
from spark_kafka_sink.errors import (
    BufferExhausted,
    DeliveryFailed,
    InvalidOption,
    KafkaSinkError,
    MetadataTimeout,
    SchemaIncompatible,
    SchemaMismatch,
    SchemaNotFound,
    TopicUnavailable,
    TransactionFailed,
)

CLASSES = [
    thing
    for _, thing in inspect.getmembers(errors, inspect.isclass)
    if issubclass(thing, BaseException)
]
FIELDS = {
    InvalidOption: {"option": "topic"},
    DeliveryFailed: {"topic": "flights", "partition": -1, "code": "_MSG_TIMED_OUT"},
    MetadataTimeout: {"topic": "flights"},
    SchemaIncompatible: {"subject": "flights-value"},
    SchemaMismatch: {"problems": ("value.id: null",)},
    SchemaNotFound: {"subject": "flights-value"},
    TopicUnavailable: {"topic": "flights", "code": "INVALID_TOPIC"},
    TransactionFailed: {"code": "GROUP_AUTHORIZATION_FAILED"},
}


def an_error(cls: type[KafkaSinkError]) -> KafkaSinkError:
    return cls("what happened", **FIELDS.get(cls, {}))


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_is_a_kafka_sink_error(cls):
    assert issubclass(cls, KafkaSinkError)


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_can_be_imported_from_the_package(cls):
    assert getattr(spark_kafka_sink, cls.__name__) is cls
    assert cls.__name__ in spark_kafka_sink.__all__


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("cls", CLASSES)
def test_error_survives_pickling_with_type_message_and_fields(cls, protocol):
    error = an_error(cls)
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is cls
    assert str(copy) == "what happened"
    assert copy.args == error.args
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("cls", FIELDS)
def test_errors_carry_their_fields_through_pickling(cls):
    copy = pickle.loads(pickle.dumps(an_error(cls)))
    assert {name: getattr(copy, name) for name in FIELDS[cls]} == FIELDS[cls]


@pytest.mark.parametrize("cls", [BufferExhausted, MetadataTimeout])
def test_every_spent_budget_is_caught_as_an_exceeded_deadline(cls):
    assert issubclass(cls, errors.DeadlineExceeded)


def test_an_on_report_that_cannot_be_pickled_is_named():
    """Under Spark Connect, which turns every PicklingError into an error of its own."""
    held = threading.Lock()
    write = foreach_batch({"kafka.bootstrap.servers": "a:1"}, lambda report: held)
    with pytest.raises(pickle.PickleError, match=r"on_report cannot be pickled: .*lock") as raised:
        CloudPickleSerializer().dumps(write)
    assert not isinstance(raised.value, pickle.PicklingError)
    CloudPickleSerializer().dumps(foreach_batch({"kafka.bootstrap.servers": "a:1"}, print))
