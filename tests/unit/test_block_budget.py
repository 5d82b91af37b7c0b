from __future__ import annotations

from spark_kafka_sink.config.producer_options import BlockBudget


def test_metadata_shares_the_budget_unless_it_has_its_own():
    budget = BlockBudget(1500, includes_metadata=True, max_block_metadata_ms=5000)
    assert budget.buffer_seconds == budget.metadata_seconds == 1.5
    assert budget.metadata_option == "kafka.max.block.ms"


def test_metadata_can_have_its_own_budget():
    budget = BlockBudget(1000, includes_metadata=False, max_block_metadata_ms=5000)
    assert budget.buffer_seconds == 1
    assert budget.metadata_seconds == 5
    assert budget.metadata_option == "kafka.max.block.metadata.ms"


def test_a_send_that_never_waits_for_room_leaves_metadata_its_own_budget():
    budget = BlockBudget(0, includes_metadata=True, max_block_metadata_ms=5000)
    assert budget.buffer_seconds == 0
    assert budget.metadata_seconds == 5
    assert budget.metadata_option == "kafka.max.block.metadata.ms"
