"""The example in CONTRIBUTING.md is a test that passes."""

from __future__ import annotations

from markdown_pages import ROOT, blocks


def test_the_example_passes(producer, records, cluster):
    (example,) = blocks(ROOT / "CONTRIBUTING.md", "python")
    namespace: dict[str, object] = {}
    exec(compile(example.text, str(example), "exec"), namespace)
    (test,) = [thing for name, thing in namespace.items() if name.startswith("test_")]
    test(producer, records, cluster)
