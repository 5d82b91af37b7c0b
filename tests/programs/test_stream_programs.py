"""All other programs with a query."""

from __future__ import annotations

import pytest
from stream_programs import STREAMS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("program", "way"), STREAMS.cases(is_fast=False))
def test_a_program_writes_what_it_writes_with_sparks_own_sink(compare, program, way):
    compare(program, way)
