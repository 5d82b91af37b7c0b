"""The part of Schema Registry's HTTP interface that answers questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from http_stub import JsonHandler, served


@dataclass(frozen=True)
class RegisteredSchema:
    """``kind``: AVRO or JSON. ``text``: the schema itself, which is JSON in both cases."""

    id: int
    kind: str
    text: str


@contextmanager
def schema_registry(subjects: Mapping[str, RegisteredSchema]) -> Iterator[str]:
    """The URL of a registry in which every subject has one version."""
    answers: dict[str, dict[str, object]] = {}
    for subject, schema in subjects.items():
        described = {"schema": schema.text, "schemaType": schema.kind}
        answers[f"/schemas/ids/{schema.id}"] = described
        version = {"subject": subject, "version": 1, "id": schema.id, **described}
        answers[f"/subjects/{subject}/versions/latest"] = version

    class Registry(JsonHandler):
        def do_GET(self):
            path = urlsplit(self.path).path
            if path in answers:
                self.answer(200, answers[path])
            else:
                self.answer(404, {"error_code": 40401, "message": f"not found: {path}"})

    with served(Registry) as url:
        yield url
