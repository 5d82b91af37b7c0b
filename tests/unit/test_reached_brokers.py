"""All Python workers of a Spark application remember which brokers were reached."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.driver.preflight import mark_reached, were_reached
from spark_kafka_sink.spark.private_api import application_folder


def settings(servers="a:9092,b:9092", **others):
    return ClientSettings((("bootstrap.servers", servers), *others.items()))


def test_brokers_are_remembered_once_they_were_reached(tmp_path):
    assert not were_reached(settings(), tmp_path)
    mark_reached(settings(), tmp_path)
    mark_reached(settings(), tmp_path)
    assert were_reached(settings(), tmp_path)


@pytest.mark.parametrize(
    "other", [settings("a:9092"), settings(**{"security.protocol": "SASL_SSL"})]
)
def test_other_brokers_and_listeners_are_not(tmp_path, other):
    mark_reached(settings(), tmp_path)
    assert not were_reached(other, tmp_path)


def test_another_application_does_not_remember_them(tmp_path):
    mark_reached(settings(), tmp_path)
    (tmp_path / "other").mkdir()
    assert not were_reached(settings(), tmp_path / "other")


def test_the_marker_is_an_empty_private_file_that_reveals_nothing(tmp_path):
    mark_reached(settings(**{"sasl.password": "planted-secret"}), tmp_path)
    (marker,) = tmp_path.iterdir()
    assert marker.read_bytes() == b""
    assert stat.S_IMODE(marker.stat().st_mode) == 0o600
    mark_reached(settings(**{"sasl.password": "another"}), tmp_path)
    assert list(tmp_path.iterdir()) == [marker]


def test_a_symbolic_link_in_its_place_is_neither_followed_nor_trusted(tmp_path):
    mark_reached(settings(), tmp_path)
    (marker,) = tmp_path.iterdir()
    marker.unlink()
    marker.symlink_to(tmp_path / "elsewhere")
    mark_reached(settings(), tmp_path)
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "elsewhere").touch()
    assert not were_reached(settings(), tmp_path)


def test_a_file_of_another_user_is_not_trusted(tmp_path, monkeypatch):
    mark_reached(settings(), tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not were_reached(settings(), tmp_path)


def test_brokers_count_as_reached_if_nothing_can_be_stored(tmp_path):
    mark_reached(settings(), tmp_path / "gone")
    assert were_reached(settings(), tmp_path / "gone")


def test_without_a_folder_nothing_is_remembered():
    mark_reached(settings(), None)
    assert not were_reached(settings(), None)


@pytest.mark.parametrize(
    ("variable", "folder"), [("/a,/other/disk", Path("/a")), ("/a", Path("/a")), ("", None)]
)
def test_the_folder_is_the_first_one_of_sparks_block_manager(monkeypatch, variable, folder):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", variable)
    assert application_folder() == folder


def test_outside_spark_there_is_no_such_folder(monkeypatch):
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    assert application_folder() is None
