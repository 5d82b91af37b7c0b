"""Libraries from PyPI, unmodified."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from libraries import fetch_libraries
from library_programs import LIBRARIES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def libraries() -> Iterator[None]:
    """Where Python finds them; what the tests have themselves comes first."""
    folder = str(fetch_libraries())
    sys.path.append(folder)
    yield
    sys.path.remove(folder)


@pytest.mark.parametrize(("program", "way"), LIBRARIES.cases(is_fast=False))
def test_a_library_writes_what_it_writes_with_sparks_own_sink(compare, program, way):
    compare(program, way)
