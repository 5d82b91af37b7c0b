"""[both] The boundary around the import of libraries: what it raises, LibraryUnavailable says.

Imports nothing but Python's own modules, and those only after an error: it also has to say that a
system has none of what the rest needs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spark_kafka_sink.errors import KafkaSinkError, LibraryUnavailable

_EVERYWHERE = "on the driver and on all executors"
NO_WINDOWS = (
    "Windows is not supported, not even as a client of Spark Connect: run this on Linux, macOS or "
    'WSL; from Windows, use format("kafka-nb"), which needs only PySpark there'
)
_INCOMPLETE = (
    "It lacks a module of Python's standard library: install or build a complete Python "
    f"{_EVERYWHERE}"
)
_NOT_ON_WINDOWS = ("fcntl", "resource")

#: what to install, where it is not named as what Python imports
_DISTRIBUTIONS = {
    "attr": "attrs",
    "aws_msk_iam_sasl_signer": "aws-msk-iam-sasl-signer-python",
    "yaml": "PyYAML",
}
#: of what an extra of this package installs
_EXTRAS = {
    **dict.fromkeys(("attr", "authlib", "cachetools", "certifi", "httpx", "httpx2"), "registry"),
    **dict.fromkeys(("py4j", "pyspark"), "spark"),
    **dict.fromkeys(("aws_msk_iam_sasl_signer", "boto3", "botocore"), "msk-iam"),
    "prometheus_client": "metrics",
    "matplotlib": "report",
}
#: where the extra would install more: on a cluster, another PySpark
REQUIREMENTS = {"pandas": "'pandas>=2.2,<3'"}

#: extras that only the process of a command needs
_OF_COMMANDS = ("jobs", "report")

#: what loaders and libraries say -> what is wrong; the first that fits
_CAUSES = {
    "file too short|invalid ELF header|bad magic number|marshal data|not a mach-o|null bytes": (
        "a file of it is damaged"
    ),
    "wrong ELF class|incompatible architecture|not a valid Win32": (
        "it is built for another processor"
    ),
    r"version [`'](GLIBC|CXXABI)|Error relocating|ld-musl|libc\.musl": (
        "it is built for another C library than this system's"
    ),
    "_ARRAY_API|numpy.dtype size changed|compiled using NumPy 1|multiarray failed to import": (
        "it does not fit the installed NumPy"
    ),
    "failed to map segment": "its folder may be mounted with noexec",
    "cannot open shared object file|image not found|Library not loaded": (
        "a file that it needs is missing"
    ),
    "undefined symbol|symbol not found|cannot import name|has no attribute": (
        "its parts, or it and what it imports, are of versions that do not fit"
    ),
}

# The tag of the Python and the machine for which a module in C is built.
_BUILD_TAG = re.compile(r"\.((?:cpython|cp|pypy|graalpy)[\w-]*\.(?:so|pyd))$")
_MAX_TEXT = 300


@contextmanager
def importing(package: str = "", extra: str = "") -> Iterator[None]:
    """Around an import. Raises LibraryUnavailable or LimitReached for whatever that raises.

    The sink's own errors pass. ``package``: what is imported, if a traceback does not show it.
    ``extra``: of this package, which installs it.
    """
    try:
        yield
    except KafkaSinkError:
        raise
    except Exception as error:  # noqa: BLE001 - a library's code, in whatever state it is
        raise _explained(error, package, extra) from None


def _explained(error: Exception, package: str, extra: str) -> KafkaSinkError:
    with suppress(ImportError):  # on Windows
        from spark_kafka_sink.process_limits import denied_memory

        if (denied := denied_memory(error)) is not None:
            return denied
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    text = _text(error)
    if remedy := _another_python(missing):
        return LibraryUnavailable(f"this Python cannot load what the sink needs ({text}). {remedy}")
    package = _root(missing) or package or _failing_package(error)
    if not package:
        return LibraryUnavailable(
            f"a library cannot be loaded ({text}). Correct this machine's Python environment"
        )
    name = _DISTRIBUTIONS.get(package, package.replace("_", "-"))
    extra = extra or _EXTRAS.get(package, "")
    folders = _folders(package)
    is_missing = isinstance(error, ImportError) and not folders
    if is_missing or (missing is not None and extra and not _other_build(folders)):
        wanted = f"'spark-kafka-sink[{extra}]'" if extra else REQUIREMENTS.get(package, name)
        where = "" if extra in _OF_COMMANDS else f" {_EVERYWHERE}"
        return LibraryUnavailable(
            f"the package {name} is not installed for {sys.executable} ({text}): run "
            f"pip install {wanted}{where}"
        )
    return not_loadable(package, text)


def _another_python(missing: str | None) -> str:
    """What to do where Python itself is the cause, or ""; ``missing``: the module, if known."""
    is_own = missing in sys.stdlib_module_names
    if missing in _NOT_ON_WINDOWS or (sys.platform == "win32" and (is_own or missing is None)):
        return NO_WINDOWS
    return _INCOMPLETE if is_own else ""


def not_loadable(package: str, text: str) -> LibraryUnavailable:
    """A package that is installed, but not so that this process can load it; ``text``: why."""
    name = _DISTRIBUTIONS.get(package, package.replace("_", "-"))
    folders = _folders(package)
    again = f"pip install --force-reinstall {_reinstalled(name)}"
    archive = next(filter(None, map(_archive, folders)), None)
    if archive is not None:
        return LibraryUnavailable(
            f"the package {name} cannot be loaded ({text}): it is in the archive {archive}, and "
            f"Python loads no modules in C from archives. Run pip install {name} {_EVERYWHERE}, or "
            "pass a packed environment with spark.archives"
        )
    cause = _other_build(folders) or next(
        (words for pattern, words in _CAUSES.items() if re.search(pattern, text)), ""
    )
    return LibraryUnavailable(
        f"the package {name} cannot be loaded{cause and ': '}{cause} ({text}). "
        f"On the machine where this failed, run {again}"
    )


def _reinstalled(name: str) -> str:
    """Arguments of pip. PySpark has no wheel; a newer one would not fit the cluster."""
    if name != "pyspark":
        return f"--only-binary :all: {name}"
    from importlib.metadata import version

    with suppress(Exception):  # its metadata may be damaged, too
        if found := version(name):
            return f"{name}=={found}"
    return name


def _text(error: BaseException) -> str:
    """What the error says, and what caused it, in one line."""
    texts: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        words = ""
        with suppress(Exception):  # of an error that cannot say what it is
            words = " ".join(str(cause).split())
        if len(words) > _MAX_TEXT:
            words = f"{words[:_MAX_TEXT]}..."
        kind = type(cause).__name__
        texts.append(f"{kind}: {words}" if words else kind)
        cause = cause.__cause__
    return "; ".join(texts)


def _root(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _failing_package(error: Exception) -> str:
    """The last package in the traceback that is neither the sink nor part of Python, or ""."""
    trace, package = error.__traceback__, ""
    while trace is not None:
        name = _root(trace.tb_frame.f_globals.get("__name__"))
        if name not in sys.stdlib_module_names and name not in (_root(__name__), "", "__main__"):
            package = name
        trace = trace.tb_next
    return package


def _folders(package: str) -> list[Path]:
    """Where Python finds the package; none: it is not installed."""
    import importlib.util

    spec = None
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(package)
    if spec is None:
        return []
    return [Path(folder) for folder in spec.submodule_search_locations or [spec.origin or ""]]


def _archive(folder: Path) -> Path | None:
    return next((parent for parent in folder.parents if parent.is_file()), None)


def _other_build(folders: list[Path]) -> str:
    """What is wrong if all modules in C are for another Python or processor."""
    from importlib.machinery import EXTENSION_SUFFIXES
    from platform import machine

    files = sorted(path for folder in folders for path in folder.rglob("*.[sp][oy]*"))
    tags = {tag[1]: path for path in files if (tag := _BUILD_TAG.search(path.name))}
    if not tags or any(f".{tag}" in EXTENSION_SUFFIXES for tag in tags):
        return ""
    file_name = next(iter(tags.values())).name
    version = ".".join(map(str, sys.version_info[:2]))
    return (
        f"it is installed for another Python or processor: found {file_name}, and this is Python "
        f"{version} on {machine()}"
    )
