"""The settings of docs/security.md with which Spark's plans show no secret of the sink."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
OPTIONS = "spark.sql.redaction.options.regex"
#: without a word by which Spark recognises secrets
LOGIN = {"schema.registry.basic.auth.user.info": "me:hunter2"}


def redaction_settings() -> dict[str, str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines if line.startswith("spark.sql.redaction"))
