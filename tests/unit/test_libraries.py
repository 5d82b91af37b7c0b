"""Whatever the import of a library raises becomes one sentence of a known error."""

from __future__ import annotations

import builtins
import importlib.util
import sys
import zipfile
from pathlib import Path

import confluent_kafka
import pyspark
import pytest
from another_python import run_python

import spark_kafka_sink
from spark_kafka_sink import libraries
from spark_kafka_sink.errors import KafkaSinkError, LibraryUnavailable
from spark_kafka_sink.libraries import importing

PACKAGE = Path(confluent_kafka.__file__).parent
EXTENSION = Path(confluent_kafka.cimpl.__file__).name
NAMES_AN_OPTION = "orrect the option"

# One process for the sink and for doctor. The first line is the sink's error, in full.
PROGRAM = """
import sys
from spark_kafka_sink.__main__ import main
from spark_kafka_sink.errors import KafkaSinkError
try:
    from spark_kafka_sink.config.options import parse as read
    read({"kafka.bootstrap.servers": "a:1"})
except KafkaSinkError as error:
    print(f"{type(error).__name__}: {error}")
sys.exit(main(["doctor", "--json", "--option", "kafka.bootstrap.servers=127.0.0.1:1"]))
"""
PARSE = "from spark_kafka_sink.config.options import parse"
FOREACH_BATCH = "from spark_kafka_sink import foreach_batch"


def exception_classes() -> list[type[BaseException]]:
    """Those of Python, and those of the libraries at the boundary."""
    modules = [
        builtins,
        *map(
            importlib.import_module,
            (
                "authlib.common.errors",
                "authlib.oauth2.rfc6749.errors",
                "confluent_kafka.error",
                "confluent_kafka.schema_registry.error",
                "fastavro.schema",
                "httpx" if importlib.util.find_spec("httpx") else "httpx2",
                "pyarrow",
                "ssl",
                "subprocess",
            ),
        ),
    ]
    values = [value for module in modules for value in vars(module).values()]
    return sorted(
        {kind for kind in values if isinstance(kind, type) and issubclass(kind, BaseException)},
        key=lambda kind: (kind.__module__, kind.__name__),
    )


def instance(kind: type[BaseException], text: str) -> BaseException:
    """An exception as if its constructor had been called with a text, whatever that requires."""
    if "Group" in kind.__name__:
        return kind(text, [SystemExit(text) if kind.__name__.startswith("B") else OSError(text)])
    error = kind.__new__(kind, text)
    error.args = (text,)
    return error


def words_of(error: BaseException) -> str:
    try:
        return str(error)
    except AttributeError:  # its constructor has not run
        return ""


@pytest.mark.parametrize("kind", exception_classes(), ids=lambda kind: kind.__qualname__)
def test_every_exception_that_an_import_raises_ends_in_one_sentence(kind):
    error = instance(kind, "what it says")
    is_ours = issubclass(kind, Exception)  # Ctrl-C and the end of the process are not
    with pytest.raises(LibraryUnavailable if is_ours else kind) as caught, importing("pyarrow"):
        raise error
    if is_ours:
        text = str(caught.value)
        assert kind.__name__ in text
        assert words_of(error) in text
        assert "pyarrow" in text
        assert "\n" not in text
        assert NAMES_AN_OPTION not in text
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("kind", [ImportError, AttributeError, TypeError, RuntimeError])
def test_pandas_that_cannot_be_loaded_is_named_by_foreach_batch(monkeypatch, kind):
    from spark_kafka_sink.spark import foreach_batch

    def fail():
        raise kind("what it says")

    monkeypatch.setattr(foreach_batch, "require_minimum_pandas_version", fail)
    with pytest.raises(LibraryUnavailable, match=r"package pandas .*what it says.*pip install"):
        foreach_batch.foreach_batch({"kafka.bootstrap.servers": "a:1"})


def test_pandas_that_is_missing_is_installed_without_another_pyspark(monkeypatch):
    monkeypatch.setattr(libraries, "_folders", lambda _: [])
    with (
        pytest.raises(LibraryUnavailable, match=r"pip install 'pandas>=2\.2,<3' on the driver"),
        importing("pandas"),
    ):
        raise ImportError("Pandas >= 2.2.0 must be installed")


def test_what_connects_packages_raise_leaves_the_classic_writers(monkeypatch):
    from spark_kafka_sink.spark import private_api

    class Broken:
        def __getattr__(self, name):
            raise TypeError("Descriptors cannot be created directly")

    monkeypatch.setitem(sys.modules, "pyspark.sql.connect", Broken())
    assert [kind.__name__ for kind in private_api.writers()] == [
        "DataFrameWriter",
        "DataStreamWriter",
    ]


def test_the_sinks_own_errors_pass():
    with pytest.raises(KafkaSinkError, match=r"^mine$"), importing("pyarrow"):
        raise KafkaSinkError("mine")


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("authlib", r"authlib is not installed .* pip install 'spark-kafka-sink\[registry\]'"),
        ("pyspark", r"pyspark is not installed .* pip install 'spark-kafka-sink\[spark\]'"),
        ("numpy", f"numpy is not installed for {sys.executable} .* pip install numpy on"),
        ("resource", r'Windows is not supported.*format\("kafka-nb"\)'),
        ("_ctypes", "lacks a module of Python's standard library: install or build a complete"),
    ],
)
def test_a_package_that_is_missing_has_its_install_command(monkeypatch, module, words):
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    with pytest.raises(LibraryUnavailable, match=words), importing():
        importlib.import_module(module)


def test_a_damaged_pyspark_is_installed_again_in_its_version_and_without_a_wheel():
    words = str(libraries.not_loadable("pyspark", "SyntaxError"))
    assert words.endswith(f"run pip install --force-reinstall pyspark=={pyspark.__version__}")


def test_an_import_that_fails_inside_a_package_names_the_package(tmp_path, monkeypatch):
    (tmp_path / "broken_of_test.py").write_text("{}.no_such_attribute\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = r"broken-of-test.*no_such_attribute"
    with pytest.raises(LibraryUnavailable, match=words), importing():
        importlib.import_module("broken_of_test")


def test_an_attribute_error_inside_a_lazy_import_keeps_its_text(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("raise AttributeError('open_memstream is missing')\n")
    path = {"PYTHONPATH": f"{tmp_path}:{Path(spark_kafka_sink.__file__).parents[1]}"}
    done = run_python("-c", "from spark_kafka_sink import foreach_batch", env=path, check=False)
    assert "LibraryUnavailable: the package numpy cannot be loaded" in done.stderr
    assert "AttributeError: open_memstream is missing" in done.stderr


@pytest.mark.parametrize("missing", ["C library", "resource"])
def test_windows_is_named_where_a_function_for_foreach_batch_is_made(missing):
    hide = {
        "C library": (
            "import ctypes\n"
            "load = ctypes.CDLL\n"
            "def CDLL(name, *rest):\n"
            "    if name is None: raise TypeError('argument of type NoneType is not iterable')\n"
            "    return load(name, *rest)\n"
            "ctypes.CDLL = CDLL\n"
        ),
        "resource": "import sys; sys.modules['resource'] = None\n",
    }[missing]
    program = f"{hide}{PROGRAM}".replace(PARSE, FOREACH_BATCH)
    path = {"PYTHONPATH": str(Path(spark_kafka_sink.__file__).parents[1])}
    done = run_python("-c", program, env=path, check=False)
    assert done.stdout.startswith("LibraryUnavailable: this ")
    assert done.stdout.count("Windows is not supported") == 2
    assert done.stderr == ""
    assert done.returncode == 1


# --- the client for Kafka, in every state in which a copy of it can be ----------------------------


def cut_extension(folder: Path) -> None:
    extension = folder / "confluent_kafka" / EXTENSION
    content = extension.read_bytes()
    extension.unlink()
    extension.write_bytes(content[: len(content) // 2])


def cut_library(folder: Path) -> None:
    libraries = folder / "confluent_kafka.libs"
    (library,) = libraries.iterdir()
    content = library.read_bytes()
    library.unlink()
    library.write_bytes(content[:-50_000])


def empty_extension(folder: Path) -> None:
    extension = folder / "confluent_kafka" / EXTENSION
    extension.unlink()
    extension.touch()


def page_as_extension(folder: Path) -> None:
    extension = folder / "confluent_kafka" / EXTENSION
    extension.unlink()
    extension.write_text("<html>" * 100)


def no_extension(folder: Path) -> None:
    (folder / "confluent_kafka" / EXTENSION).unlink()


def no_libraries(folder: Path) -> None:
    for library in (folder / "confluent_kafka.libs").iterdir():
        library.unlink()


def renamed(tag: str):
    def rename(folder: Path) -> None:
        extension = folder / "confluent_kafka" / EXTENSION
        extension.rename(extension.with_name(f"cimpl.{tag}.so"))

    return rename


def zipped(folder: Path) -> None:
    with zipfile.ZipFile(folder / "packages.zip", "w") as archive:
        for file in (folder / "confluent_kafka").glob("*.*"):
            if file.is_file():
                archive.write(file, f"confluent_kafka/{file.name}")
    (folder / "confluent_kafka").rename(folder / "elsewhere")


def not_python(folder: Path) -> None:
    init = folder / "confluent_kafka" / "__init__.py"
    init.unlink()
    init.write_text("<html>\n")


STATES = [
    (cut_extension, "a file of it is damaged (OSError: "),
    (cut_library, "a file of it is damaged (OSError: "),
    (empty_extension, "a file of it is damaged (OSError: "),
    (page_as_extension, "a file of it is damaged (OSError: "),
    (no_extension, "(ImportError: it has no file cimpl"),
    (no_libraries, "a file that it needs is missing (OSError: librdkafka"),
    (renamed("cpython-39-x86_64-linux-gnu"), "another Python or processor: found cimpl.cpython-39"),
    (renamed("cpython-311-sparc64-linux-gnu"), "another Python or processor: found cimpl.cpython-"),
    (zipped, "packages.zip, and Python loads no modules in C from archives"),
    (not_python, None),
]


@pytest.mark.skipif(sys.platform != "linux", reason="the files are those of a wheel for Linux")
@pytest.mark.parametrize(
    ("damage", "words"), STATES, ids=lambda value: getattr(value, "__name__", str(value)[:30])
)
def test_a_client_that_cannot_be_loaded_is_named_by_sink_and_doctor(tmp_path, damage, words):
    for name in ("confluent_kafka", "confluent_kafka.libs"):
        (tmp_path / name).mkdir()
        for file in PACKAGE.with_name(name).iterdir():
            (tmp_path / name / file.name).symlink_to(file)
    extension = tmp_path / "confluent_kafka" / EXTENSION
    extension.unlink()
    extension.write_bytes((PACKAGE / EXTENSION).read_bytes())  # it looks for libraries beside it
    damage(tmp_path)
    ours = Path(spark_kafka_sink.__file__).parents[1]
    path = {"PYTHONPATH": f"{tmp_path}:{tmp_path / 'packages.zip'}:{ours}"}
    done = run_python("-c", PROGRAM, env=path, check=False)
    assert done.stderr == ""
    assert done.returncode == 1
    assert "LibraryUnavailable: " in done.stdout or words is None
    if words is not None:
        assert done.stdout.count(words) == 2
    assert '"outcome": "failed"' in done.stdout
    assert "the package confluent-kafka cannot be loaded" in done.stdout
    assert "pip install" in done.stdout
    assert NAMES_AN_OPTION not in done.stdout
