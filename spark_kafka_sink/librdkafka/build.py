"""[both] The librdkafka in use: its version, where it is, and what it was built with."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from functools import cache

from spark_kafka_sink.errors import LibraryUnavailable
from spark_kafka_sink.librdkafka import _prototypes as c
from spark_kafka_sink.librdkafka.setting_specs import ERROR_TEXT_SIZE

_KERBEROS = "sasl_gssapi"
_HOW_TO_GET = {
    _KERBEROS: (
        "the wheel of confluent-kafka has no Kerberos. On the driver and on all executors, run "
        "conda install -c conda-forge python-confluent-kafka; or install Confluent's package "
        "librdkafka-dev (Red Hat: librdkafka-devel) and the system's libsasl2-modules-gssapi-mit "
        "and krb5-user (cyrus-sasl-gssapi and krb5-workstation), and run pip install "
        "--force-reinstall --no-deps --no-binary confluent-kafka "
        '"confluent-kafka<=$(pkg-config --modversion rdkafka)"; see Kerberos in docs/security.md'
    ),
}
_ANOTHER = "install one that has it, or the wheel: pip install --force-reinstall confluent-kafka"


class _SymbolInfo(ctypes.Structure):
    """Dl_info"""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def version() -> str:
    return str(c.version_str().decode())


@cache
def path() -> str:
    """The file of the library that the loader has found, or "" if this system does not say."""
    info = _SymbolInfo()
    try:
        is_found = c.libc.dladdr(ctypes.cast(c.version, ctypes.c_void_p), ctypes.byref(info))
    except AttributeError:
        return ""
    return os.path.realpath(os.fsdecode(info.file)) if is_found and info.file else ""


@cache
def features() -> frozenset[str]:
    """The names in ``builtin.features``, such as ``zstd`` or ``sasl_gssapi``."""
    conf = c.conf_new()
    text, size = ctypes.create_string_buffer(ERROR_TEXT_SIZE), ctypes.c_size_t(ERROR_TEXT_SIZE)
    c.conf_get(conf, b"builtin.features", text, ctypes.byref(size))
    c.conf_destroy(conf)
    return frozenset(text.value.decode().split(","))


def check_features(needed: Iterable[tuple[str, str]]) -> None:
    """Raise LibraryUnavailable unless the library has these; pairs of option and feature."""
    for option, feature in needed:
        if feature not in features():
            raise LibraryUnavailable(
                f"{option} needs a librdkafka with {feature}, and {version()} of {path()} has "
                f"none: {_HOW_TO_GET.get(feature, _ANOTHER)}"
            )
