"""What doctor says of a schema registry, which it only reads."""

from __future__ import annotations

import pytest
from stub_registry import running_stub

from spark_kafka_sink.config.secret import Secret
from spark_kafka_sink.tools.doctor.diagnosis import diagnose


@pytest.fixture
def registry():
    with running_stub() as stub:
        yield stub


def results(registry, **more: str):
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic": "t",
        "value.format": "avro",
        "schema.registry.url": registry.url,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    found = []
    for result in diagnose(options, timeout_seconds=20):
        if result.name == "schema_registry":
            found.append(result)
        if result.name == "bootstrap_servers":
            break
    return [(each.outcome.value, each.subject, each.message) for each in found]


def test_a_subject_without_a_schema_gets_one_from_the_query(registry):
    message = "has no schema yet: the query registers it"
    assert results(registry) == [("passed", "t-value", message)]
    assert registry.subjects == {}


def test_a_schema_that_must_be_there_and_is_not_fails(registry):
    ((outcome, subject, message),) = results(registry, auto_register_schemas="false")
    assert (outcome, subject) == ("failed", "t-value")
    assert "auto.register.schemas=false" in message


def test_the_latest_schema_of_each_column_is_named(registry):
    registry.first_id = 41
    registry.add("t-value", '"string"')
    found = results(registry, key_format="json")
    assert ("passed", "t-value", "its latest schema has the id 41") in found
    assert len(found) == 2


def test_a_refused_login_fails_and_hides_the_password(registry):
    registry.authorization = "Basic nobody"
    ((outcome, _, message),) = results(
        registry, **{"schema.registry.basic.auth.user.info": Secret("me:swordfish")}
    )
    assert outcome == "failed"
    assert "the login" in message
    assert "swordfish" not in message


@pytest.mark.parametrize("failure", [(500, b"{}"), (200, b"<html>"), (200, b"{}")])
def test_what_is_no_registry_fails(registry, failure):
    registry.failure = failure
    ((outcome, _, message),) = results(registry)
    assert outcome == "failed"
    assert "schema.registry.url" in message
