"""The part of Schema Registry's HTTP interface that names the latest version of a subject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message

from http_stub import served


@dataclass(frozen=True)
class RegisteredSchema:
    """``text``: the schema itself."""

    id: int
    text: str


@contextmanager
def schema_registry(subjects: Mapping[str, RegisteredSchema]) -> Iterator[str]:
    """The URL of a registry in which every subject has one version."""
    answers = {
        f"/subjects/{subject}/versions/latest": {
            "subject": subject,
            "version": 1,
            "id": schema.id,
            "schema": schema.text,
        }
        for subject, schema in subjects.items()
    }

    def answer(path: str, headers: Message) -> tuple[int, object]:
        del headers
        if path in answers:
            return 200, answers[path]
        return 404, {"error_code": 40401, "message": f"not found: {path}"}

    with served(answer) as url:
        yield url
