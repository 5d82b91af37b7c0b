"""The programs that every ``make test`` runs."""

from __future__ import annotations

import pytest
from batch_programs import BATCHES
from library_programs import LIBRARIES
from program import plain_text
from stream_programs import STREAMS


@pytest.mark.parametrize(
    ("program", "way"), BATCHES.cases(is_fast=True) + STREAMS.cases(is_fast=True)
)
def test_a_program_writes_what_it_writes_with_sparks_own_sink(compare, program, way):
    compare(program, way)


def test_every_plain_program_is_python():
    programs = [program for program in BATCHES + STREAMS + LIBRARIES if "plain" in program.ways]
    for program in programs:
        compile(plain_text(program), program.name, "exec")
