"""All Python workers of a Spark application remember which brokers were reached."""

from __future__ import annotations

import os
import stat

import pytest

from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.spark.reached_brokers import remember, were_reached


def settings(servers="a:9092,b:9092", **others):
    return ClientSettings((("bootstrap.servers", servers), *others.items()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that Spark's block manager creates for an application."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/other/disk")
    return tmp_path


def test_brokers_are_remembered_once_they_were_reached(folder):
    assert not were_reached(settings())
    remember(settings())
    remember(settings())
    assert were_reached(settings())


@pytest.mark.parametrize(
    "other", [settings("a:9092"), settings(**{"security.protocol": "SASL_SSL"})]
)
def test_other_brokers_and_listeners_are_not(folder, other):
    remember(settings())
    assert not were_reached(other)


def test_another_application_does_not_remember_them(folder, monkeypatch):
    remember(settings())
    (folder / "other").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder / "other"))
    assert not were_reached(settings())


def test_the_marker_is_an_empty_private_file_that_reveals_nothing(folder):
    remember(settings(**{"sasl.password": "planted-secret"}))
    (marker,) = folder.iterdir()
    assert marker.read_bytes() == b""
    assert stat.S_IMODE(marker.stat().st_mode) == 0o600
    remember(settings(**{"sasl.password": "another"}))
    assert list(folder.iterdir()) == [marker]


def test_a_symbolic_link_in_its_place_is_neither_followed_nor_trusted(folder):
    remember(settings())
    (marker,) = folder.iterdir()
    marker.unlink()
    marker.symlink_to(folder / "elsewhere")
    remember(settings())
    assert not (folder / "elsewhere").exists()
    (folder / "elsewhere").touch()
    assert not were_reached(settings())


def test_a_file_of_another_user_is_not_trusted(folder, monkeypatch):
    remember(settings())
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not were_reached(settings())


def test_brokers_count_as_reached_if_nothing_can_be_stored(folder, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder / "gone"))
    remember(settings())
    assert were_reached(settings())


def test_outside_spark_there_is_no_earlier_micro_batch(monkeypatch):
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    remember(settings())
    assert not were_reached(settings())
