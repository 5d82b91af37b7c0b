"""``${env:NAME}``, ``${file:PATH}`` and ``${secrets:SCOPE/KEY}`` -> their values.

Secrets must be given in this way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from spark_kafka_sink.config import client_settings, registry_options
from spark_kafka_sink.config.option import PREFIX
from spark_kafka_sink.config.registry_options import REGISTRY_PREFIX
from spark_kafka_sink.config.secret import Secret, read_secret
from spark_kafka_sink.tools.job import databricks_secrets
from spark_kafka_sink.tools.job.document import Document, Mistake, Path, is_options

_REFERENCE = re.compile(r"\$\{(env|file|secrets):([^{}]+)\}")
_FORMS = "${env:NAME}, ${file:PATH} or, on Databricks, ${secrets:SCOPE/KEY}"
_BEGINNINGS = ("${env", "${file", "${secrets")
_OF_SCOPE = "${secrets:"  # is a secret wherever it stands

# How Spark recognises secrets in the options of other sources (spark.redaction.regex), and the
# names that it misses: Azure's connection strings, account keys and shared access signatures,
# and the keys of Google's and Snowflake's sources.
_SOUNDS_SECRET = re.compile(
    r"(?i)secret|password|passphrase|token|access[.]?key|account[._]?key|private[._]?key"
    r"|connection[._]?string|[.]sas[.]|(^|[.])credentials$"
)


class References:
    """Replaces the references in a document, and refuses secrets in plain text.

    ``data``: the document's, with values instead of references, and every secret as a ``Secret``.
    ``unresolved``: what has no value because of a mistake; it is left out of ``data``.
    """

    def __init__(self, document: Document, environment: Mapping[str, str] = os.environ) -> None:
        self.mistakes: list[Mistake] = []
        self.unresolved: set[Path] = set()
        self._document = document
        self._environment = environment
        self.data: dict[str, Any] = self._resolved(document.data, ())

    def _resolved(self, data: Any, path: Path) -> Any:
        if isinstance(data, dict):
            values = {key: self._resolved(value, (*path, key)) for key, value in data.items()}
            return {key: v for key, v in values.items() if (*path, key) not in self.unresolved}
        if isinstance(data, list):
            return [self._resolved(value, (*path, str(i))) for i, value in enumerate(data)]
        if path == ("sql",):  # Spark replaces variables there itself
            return data
        try:
            return self._value(data, path)
        except ValueError as error:
            self.mistakes.append(self._document.mistake(path, str(error)))
            self.unresolved.add(path)
            return None

    def _value(self, text: str, path: Path) -> str:
        """Raises ValueError with a sentence that does not show the text."""
        around = _REFERENCE.sub("", text)
        if any(each in around for each in _BEGINNINGS):
            raise ValueError(f"is not a reference of the form {_FORMS}")
        must_hide = _holds_secret(path)
        if must_hide and around.strip():
            raise ValueError(_literal_secret(path))
        value = _REFERENCE.sub(lambda found: self._referenced(found[1], found[2].strip()), text)
        if must_hide:
            return read_secret(value)
        return Secret(value.strip()) if _OF_SCOPE in text else value

    def _referenced(self, kind: str, name: str) -> str:
        if kind == "env":
            if not self._environment.get(name):
                state = "empty" if name in self._environment else "not set"
                raise ValueError(f"the environment variable {name} is {state}")
            return self._environment[name]
        if kind == "secrets":
            scope, _, key = name.partition("/")
            if not scope or not key:
                raise ValueError(f"is not a reference of the form {_FORMS}")
            return databricks_secrets.read(scope, key)
        try:
            text = read_secret(FilePath(name).read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"the file {name} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError(f"the file {name} is not UTF-8") from None
        if not text.strip("\r\n"):
            raise ValueError(f"the file {name} is empty")
        return text


def _holds_secret(path: Path) -> bool:
    if not is_options(path[:-1]):
        return False
    name = path[-1].lower()
    if name.startswith(PREFIX):
        return client_settings.is_secret(name.removeprefix(PREFIX))
    if name.startswith(REGISTRY_PREFIX):
        setting = name.removeprefix(REGISTRY_PREFIX)
        if registry_options.is_secret(setting):
            return True
    return path[0] == "source" and bool(_SOUNDS_SECRET.search(name))


def _literal_secret(path: Path) -> str:
    advice = f"is a secret: write {_FORMS} instead of the value, which is not shown here"
    if path[-1].lower() == f"{PREFIX}sasl.jaas.config":
        return (
            f"{advice}. The reference must be the whole value; or leave it out, and set "
            f"{PREFIX}sasl.username and {PREFIX}sasl.password"
        )
    return advice
