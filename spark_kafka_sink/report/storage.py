"""[both] The folder of report.path: on this machine, or in storage that pyarrow supports."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import Protocol

from spark_kafka_sink.config.option import file_path
from spark_kafka_sink.errors import LibraryUnavailable
from spark_kafka_sink.libraries import importing

# What pyarrow says where the libraries of Java or Hadoop are missing.
_HADOOP = re.compile("libjvm|libhdfs")


def local_path(folder: str) -> Path | None:
    """The folder on this machine, or None if it is a URI of other storage."""
    path = file_path(folder)
    return None if path is None else Path(path)


def open_folder(folder: str) -> LocalFolder | RemoteFolder:
    """The folder of a checked ``report.path``. Raises any Exception if there is no such storage."""
    path = local_path(folder)
    return RemoteFolder(folder) if path is None else LocalFolder(path)


def try_writing(folder: str) -> bool:
    """Write a file and delete it; returns whether files can be appended to. Raises any Exception.

    A folder of this machine that does not exist is not created: its parent is tried.
    """
    target = open_folder(folder)
    if isinstance(target, LocalFolder):
        target = target.nearest()
    name = f"trial-{uuid.uuid4().hex}"
    target.write(name, b"\n")
    try:
        return isinstance(target, LocalFolder) and target.can_append(name)
    finally:
        target.delete(name)


class Folder(Protocol):
    """A folder, which need not exist yet. Every method may raise any Exception, and may hang."""

    def names(self, subfolder: str = "") -> list[str]:
        """The names in the folder, or in a subfolder; none if it does not exist."""

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file. ``name`` may begin with the name of a subfolder."""

    def read(self, name: str) -> bytes: ...

    def delete(self, name: str) -> None: ...


class LocalFolder:
    """A folder of this machine, without pyarrow, whose import takes longer than all the rest."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)

    def exists(self) -> bool:
        return self._path.is_dir()

    def nearest(self) -> LocalFolder:
        """The folder itself, or the first one above it that exists."""
        return LocalFolder(
            next(path for path in (self._path, *self._path.parents) if path.exists())
        )

    def names(self, subfolder: str = "") -> list[str]:
        try:
            return [entry.name for entry in (self._path / subfolder).iterdir()]
        except FileNotFoundError:
            return []

    def size(self, name: str) -> int:
        return (self._path / name).stat().st_size

    def append_line(self, name: str, line: bytes) -> None:
        """Append to a file; first end an incomplete line of a writer that was killed.

        Raises OSError where files cannot be appended to, as in volumes of Databricks.
        """
        with (self._path / name).open("a+b") as stream:
            if stream.seek(0, os.SEEK_END):
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":
                    line = b"\n" + line
            stream.write(line)

    def can_append(self, name: str) -> bool:
        try:
            self.append_line(name, b"\n")
        except OSError:
            return False
        return True

    def write(self, name: str, data: bytes) -> None:
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.write_bytes(data)
        except BaseException:
            path.unlink(missing_ok=True)  # an empty file would count as one of the newest
            raise

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def delete(self, name: str) -> None:
        (self._path / name).unlink()


class RemoteFolder:
    """A folder of other storage. An object store has none, and no file can be appended to."""

    def __init__(self, uri: str) -> None:
        with importing("pyarrow"):
            from pyarrow import fs

        try:
            self._files, self._path = fs.FileSystem.from_uri(uri)
        except OSError as error:
            if not _HADOOP.search(str(error)):
                raise
            raise LibraryUnavailable(
                f"Hadoop's client, which pyarrow needs for report.path, cannot be loaded here "
                f"({' '.join(str(error).split())}). Set the environment variables JAVA_HOME, "
                "HADOOP_HOME, and CLASSPATH to what `hadoop classpath --glob` prints"
            ) from None

    def names(self, subfolder: str = "") -> list[str]:
        from pyarrow import fs

        selector = fs.FileSelector(f"{self._path}/{subfolder}".rstrip("/"), allow_not_found=True)
        return [info.base_name for info in self._files.get_file_info(selector)]

    def write(self, name: str, data: bytes) -> None:
        path = f"{self._path}/{name}"
        try:
            self._write(path, data)
        except FileNotFoundError:  # a file system that has folders
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
            self._write(path, data)

    def _write(self, path: str, data: bytes) -> None:
        with self._files.open_output_stream(path) as stream:
            stream.write(data)

    def read(self, name: str) -> bytes:
        with self._files.open_input_stream(f"{self._path}/{name}") as stream:
            return bytes(stream.read())

    def delete(self, name: str) -> None:
        self._files.delete_file(f"{self._path}/{name}")
