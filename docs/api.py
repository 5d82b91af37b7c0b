"""Writes the part of docs/api.md that is made from docstrings: ``make api``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from griffe import Alias, Class, GriffeLoader, Module, Object, load_extensions
from griffe2md import ConfigDict, render_object_docs

from spark_kafka_sink.report.batch_figures import FIGURES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api.md"
BEGIN, END = "<!-- api: written by `make api` -->\n", "<!-- /api -->\n"

CONFIG: ConfigDict = {
    "heading_level": 3,
    "inherited_members": ["folder", "pids", "detach", "stop"],  # of the local servers
    "line_length": 88,  # needs Black
    "members_order": "source",
    "show_if_no_docstring": False,
    "show_object_full_path": False,
    "show_root_full_path": False,
    "show_root_members_full_path": False,
    "show_signature_annotations": True,
    "summary": False,
}


def written() -> str:
    """The page, with the part between the two comments regenerated."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    text = "\n\n".join(section.strip() for section in sections())
    return f"{before}{BEGIN}\n{linked(text)}\n\n{END}{after}"


def sections() -> Iterator[str]:
    # Sphinx's comments, "#:", describe the fields of dataclasses.
    loader = GriffeLoader(search_paths=[ROOT], extensions=load_extensions("griffe_sphinx"))
    package = loader.load("spark_kafka_sink")
    loader.resolve_aliases()
    for module in public_modules(package):
        yield f"## `{module.path}`"
        for member in public_objects(module):
            yield render_object_docs(member, CONFIG)
            yield from figures(member)


def figures(member: Object) -> Iterator[str]:
    """A sentence on a class that has figures of the report, which have their own page."""
    if isinstance(member, Class) and "TaskFigures" in map(str, member.bases):
        names = ", ".join(f"`{name}`" for name in FIGURES if name in member.inherited_members)
        yield (
            f"It also has these figures, as keyword arguments and attributes: {names}. "
            "[The format of reports](report_format.md) says what they mean."
        )


def public_modules(package: Module) -> list[Module]:
    """The package and the tools that say what they export."""
    tools = sorted(package.modules["tools"].modules.values(), key=lambda module: module.name)
    return [module for module in (package, *tools) if module.exports is not None]


def public_objects(module: Module) -> list[Object]:
    """What the module exports and documents: functions, then classes, then errors."""
    exported = [module[str(name)] for name in module.exports or []]
    members = [name.final_target if isinstance(name, Alias) else name for name in exported]
    return sorted(
        (member for member in members if member.has_docstring),
        key=lambda member: (member.module.name == "errors", member.is_class, member.name),
    )


def linked(text: str) -> str:
    """With links to base classes that lead to their headings, and none to those of others."""

    def link(base: re.Match[str]) -> str:
        name = base[1]
        return f"[`{name}`](#{name.lower()})" if f"### `{name}`\n" in text else f"`{name}`"

    return re.sub(r"<code>\[(\w+)\]\(#[\w.]+\)</code>", link, text)


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
