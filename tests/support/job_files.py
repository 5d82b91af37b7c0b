"""Checks a job's configuration whose variables and files of secrets exist only in production."""

from __future__ import annotations

import re
from pathlib import Path

from spark_kafka_sink.tools.job.configuration import JobFile, check
from spark_kafka_sink.tools.job.document import Document


def checked(text: str, name: str, folder: Path) -> JobFile:
    """The checked configuration, with an example for every ``${env:NAME}`` and ``${file:PATH}``.

    ``folder``: for the files. Raises InvalidConfiguration.
    """
    for file in re.findall(r"\$\{file:([^}]+)\}", text):
        stored = folder / Path(file).name
        stored.write_text(f"of {stored.name}\n")
        text = text.replace(file, str(stored))
    variables = dict.fromkeys(re.findall(r"\$\{env:([^}]+)\}", text), "example")
    return check(Document(text, name), variables)
