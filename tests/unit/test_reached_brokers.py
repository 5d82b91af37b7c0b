"""Brokers that were reached are known to all Python workers of one Spark application."""

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
    """What Spark's block manager makes for an application."""
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


def test_another_application_does_not_know_them(folder, monkeypatch):
    remember(settings())
    (folder / "other").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder / "other"))
    assert not were_reached(settings())


def test_what_is_left_is_an_empty_file_of_ones_own_that_names_nobody(folder):
    remember(settings(**{"sasl.password": "planted-secret"}))
    (marker,) = folder.iterdir()
    assert marker.read_bytes() == b""
    assert stat.S_IMODE(marker.stat().st_mode) == 0o600
    remember(settings(**{"sasl.password": "another"}))
    assert list(folder.iterdir()) == [marker]


def test_a_link_in_its_place_is_neither_followed_nor_believed(folder):
    remember(settings())
    (marker,) = folder.iterdir()
    marker.unlink()
    marker.symlink_to(folder / "elsewhere")
    remember(settings())
    assert not (folder / "elsewhere").exists()
    (folder / "elsewhere").touch()
    assert not were_reached(settings())


def test_a_file_of_somebody_else_is_not_believed(folder, monkeypatch):
    remember(settings())
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not were_reached(settings())


def test_brokers_count_as_reached_where_nothing_can_be_remembered(folder, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder / "gone"))
    remember(settings())
    assert were_reached(settings())


def test_outside_spark_there_is_no_earlier_micro_batch(monkeypatch):
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    remember(settings())
    assert not were_reached(settings())
