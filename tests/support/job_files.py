"""Checks jobs' configurations: their mistakes; and those whose secrets exist only in production."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_kafka_sink.errors import InvalidConfiguration
from spark_kafka_sink.tools.job.configuration import Configuration, check
from spark_kafka_sink.tools.job.document import Document


def mistakes(check: Callable[[], object]) -> list[str]:
    """The lines of the mistakes that ``check`` reports, each with its place."""
    with pytest.raises(InvalidConfiguration) as raised:
        check()
    count, *lines = str(raised.value).splitlines()
    assert count.startswith(str(len(lines)))
    return lines


def checked(text: str, name: str, folder: Path) -> Configuration:
    """The checked configuration, with an example for every ``${env:NAME}`` and ``${file:PATH}``.

    ``folder``: for the files. Raises InvalidConfiguration.
    """
    for file in re.findall(r"\$\{file:([^}]+)\}", text):
        stored = folder / Path(file).name
        stored.write_text(f"of {stored.name}\n")
        text = text.replace(file, str(stored))
    names = re.findall(r"\$\{env:([^}]+)\}", text)
    variables = {name: "https://e.g" if name.endswith("_URL") else "example" for name in names}
    return check(Document(text, name), variables)
