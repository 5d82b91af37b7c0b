"""All other programs that write a DataFrame once."""

from __future__ import annotations

import pytest
from batch_programs import BATCHES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("program", "way"), BATCHES.cases(is_fast=False))
def test_a_program_writes_what_it_writes_with_sparks_own_sink(compare, program, way):
    compare(program, way)
