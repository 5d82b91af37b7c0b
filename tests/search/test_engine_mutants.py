"""The mutants of the engine are mutants of the code as it is."""

from __future__ import annotations

import ast

import pytest
from engine_mutants import MUTANTS, ROOT


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_replaces_code_of_the_engine(name):
    """Whether the model notices it is what ``make search-mutants`` says."""
    source = (ROOT / MUTANTS[name].path).read_text(encoding="utf-8")
    before, after = ast.parse(source), ast.parse(MUTANTS[name].applied(source))
    assert ast.dump(before) != ast.dump(after)
