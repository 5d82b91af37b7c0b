"""The programs that every ``make test`` runs."""

from __future__ import annotations

import pytest
from batch_programs import BATCHES
from stream_programs import STREAMS


@pytest.mark.parametrize(
    ("program", "way"), BATCHES.cases(is_fast=True) + STREAMS.cases(is_fast=True)
)
def test_a_program_writes_what_it_writes_with_sparks_own_sink(compare, program, way):
    compare(program, way)
