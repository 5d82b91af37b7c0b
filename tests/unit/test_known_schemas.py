"""A process requests a schema once, and other processes of the application know it too."""

from __future__ import annotations

import errno
import os
import pickle
import threading

import pyarrow as pa
import pytest
from another_python import run_python
from serializing import LATEST, REQUIRED, ROWS, batch, prepared
from stub_registry import StubRegistry, basic

from spark_kafka_sink.errors import LimitReached, RegistryRejected, RegistryUnavailable
from spark_kafka_sink.schemas.registry_client import RegistryClient


def test_a_known_schema_needs_no_registry_in_a_new_process(registry, tmp_path, new_process):
    prepared(registry, folder=tmp_path)
    new_process()
    registry.failure = (503, b"gone")
    assert prepared(registry, folder=tmp_path).serialize(batch(), "t")
    new_process()
    with pytest.raises(RegistryUnavailable, match="503"):
        prepared(registry, folder=None)


STATIC_TOKEN = {
    "bearer.auth.credentials.source": "STATIC_TOKEN",
    "bearer.auth.identity.pool.id": "pool",  # older clients require it
}
TWO_LOGINS = {
    "user": [
        ({"basic.auth.user.info": login}, basic(login)) for login in ("dev:word", "prod:word")
    ],
    "password": [
        ({"basic.auth.user.info": login}, basic(login)) for login in ("me:dev", "me:prod")
    ],
    "token": [
        (
            {**STATIC_TOKEN, "bearer.auth.token": token, "bearer.auth.logical.cluster": "one"},
            f"Bearer {token}",
        )
        for token in ("dev", "prod")
    ],
    "logical cluster": [
        ({**STATIC_TOKEN, "bearer.auth.token": "mine", "bearer.auth.logical.cluster": name}, name)
        for name in ("dev", "prod")
    ],
}


@pytest.mark.parametrize("is_new_process", [True, False])
@pytest.mark.parametrize("topic", ["t", None])
@pytest.mark.parametrize("logins", TWO_LOGINS.values(), ids=TWO_LOGINS)
def test_the_answers_of_two_registries_at_one_url_do_not_mix(
    registry, tmp_path, new_process, logins, topic, is_new_process
):
    for number, (settings, name) in enumerate(logins):
        registry.tenants[name] = StubRegistry(first_id=100 + number)
        named = {f"schema.registry.{key}": value for key, value in settings.items()}
        serializer = prepared(registry, topic=topic, folder=tmp_path, **named)
        serializer.folder = tmp_path
        rows = batch() if topic else batch(topic=["t"] * len(ROWS))
        value = serializer.serialize(rows, topic).batch.column("value")[0].as_py()
        assert value[:5] == b"\0" + (100 + number).to_bytes(4, "big")
        if is_new_process:
            new_process()
    secret = [value for settings, name in logins for value in (name, *settings.values())]
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o077 == 0
        assert not any(value in file.name for value in secret)


def test_of_two_answers_at_once_the_first_one_counts(registry, tmp_path, new_process, monkeypatch):
    latest = {**LATEST, "folder": tmp_path}
    registry.add("t-value", REQUIRED)
    ask = RegistryClient.latest
    first = []

    def overtaken(*arguments):
        monkeypatch.setattr(RegistryClient, "latest", ask)
        new_process()
        first.append(prepared(registry, **latest).known)
        new_process()
        registry.add("t-value", REQUIRED.replace("Order", "NewOrder"))
        return ask(*arguments)

    monkeypatch.setattr(RegistryClient, "latest", overtaken)
    second = prepared(registry, **latest).known
    assert len(registry.requests) == 2
    assert [second] == first
    new_process()
    assert [prepared(registry, **latest).known] == first
    assert len(list(tmp_path.iterdir())) == 2  # the answer, and the key of its name


def test_a_folder_without_links_keeps_schemas_too(registry, tmp_path, new_process, monkeypatch):
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    known = prepared(registry, folder=tmp_path).known
    new_process()
    assert prepared(registry, folder=tmp_path).known == known
    assert len(registry.requests) == 1
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture
def topics():
    return batch(ROWS[:1] * 200, topic=[f"t{number}" for number in range(200)])


def test_many_new_topics_are_asked_for_a_few_at_a_time(registry, topics):
    registry.delay_seconds = 0.01
    serializer = prepared(registry, topic=None)
    serializer.serialize(topics, None)
    assert len(serializer.known) == len(registry.requests) == 200
    assert registry.most_at_once <= 16


def test_a_thread_for_a_question_that_does_not_start_names_the_limit(registry, monkeypatch):
    def fail(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", fail)
        with pytest.raises(LimitReached, match=r"no more threads .*ulimit -u"):
            prepared(registry)
    assert not registry.requests


def test_a_failure_ends_the_questions_and_loses_no_answer(registry, topics):
    registry.failing_subject = "t3-value"
    serializer = prepared(registry, topic=None)
    with pytest.raises(RegistryRejected, match="t3-value"):
        serializer.serialize(topics, None)
    asked = set(registry.requests)
    assert len(asked) < 200
    registry.failing_subject = ""
    registry.requests.clear()
    serializer.serialize(topics, None)
    assert asked & set(registry.requests) == {"POST /subjects/t3-value/versions?normalize=False"}
    assert len(asked) + len(registry.requests) == 201


def test_the_driver_registers_once_and_tasks_ask_nothing(registry):
    serializer = pickle.loads(pickle.dumps(prepared(registry)))
    assert len(registry.requests) == 1
    registry.failure = (500, b"")
    assert len(serializer.serialize(batch(), "t").batch) == 3
    assert len(registry.requests) == 1


@pytest.mark.parametrize("schema_format", ["avro", "json"])
def test_a_worker_whose_schemas_are_known_loads_neither_pandas_nor_the_registrys_client(
    registry, tmp_path, schema_format
):
    serializer = prepared(registry, value_format=schema_format)
    (tmp_path / "serializer").write_bytes(pickle.dumps(serializer))
    rows = batch()
    with (
        pa.OSFile(str(tmp_path / "rows"), "wb") as file,
        pa.ipc.new_stream(file, rows.schema) as to,
    ):
        to.write_batch(rows)
    code = """
import pickle, sys
from pathlib import Path
import pyarrow as pa

folder = Path(sys.argv[1])
serializer = pickle.loads((folder / "serializer").read_bytes())
batch = pa.ipc.open_stream(pa.OSFile(str(folder / "rows"))).read_next_batch()
assert len(serializer.serialize(batch, "t").batch) == 3
heavy = ("pandas", "confluent_kafka.schema_registry", "httpx", "fastavro")
assert [name for name in heavy if name in sys.modules] == []
"""
    run_python("-c", code, tmp_path)
