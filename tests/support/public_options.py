"""Options that people write, from public programs, and what the sink makes of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.config.options import review
from spark_kafka_sink.errors import LibraryUnavailable

_FOLDER = Path(__file__).parents[1] / "corpus"
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}
REQUIRED = {"kafka.bootstrap.servers": "host:9092", "topic": "topic1"}


def pairs() -> list[tuple[str, str]]:
    """Distinct names and values of single options."""
    lines = (_FOLDER / "options.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts = [re.sub(r"\\(.)", lambda match: _ESCAPES[match[1]], line) for line in lines]
    return [(name, value) for name, value, _ in (text.split("\t") for text in texts)]


def dictionaries() -> list[dict[str, str]]:
    """Options of whole writes, as Spark passes them on: as text."""
    lines = (_FOLDER / "dictionaries.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {name: _text(value) for name, value in json.loads(line)["options"].items()}
        for line in lines
    ]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def jaas_strings() -> list[str]:
    text = (_FOLDER / "jaas.txt").read_text(encoding="utf-8")
    return [part.partition("\n")[2].removesuffix("\n") for part in text.split("=== count=")[1:]]


@dataclass(frozen=True)
class Answer:
    """What the sink makes of options."""

    #: why it refuses them, one sentence each; none if it accepts them
    problems: tuple[str, ...] = ()
    #: what it warns of
    warnings: tuple[str, ...] = ()

    def ignores(self, name: str) -> bool:
        """Whether a warning says that the option has no effect."""
        _, is_so, names = " ".join(self.warnings[:1]).lower().partition(" no effect on this sink: ")
        # Options in a JAAS string are named with the string.
        names = re.sub(r"\S+ in kafka\.sasl\.jaas\.config|\([^()]*\)", "", names)
        return bool(is_so) and name.lower() in re.split(r"[\s,;()]+", names)


def answer(options: Mapping[str, str]) -> Answer:
    try:
        reviewed = review(options)
    except LibraryUnavailable as error:
        return Answer((str(error),))
    warnings = reviewed.options.warnings if reviewed.options else ()
    return Answer(tuple(map(str, reviewed.problems)), warnings)
