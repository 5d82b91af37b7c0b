"""The tests' own broker says so when it is used wrongly."""

from __future__ import annotations

import pytest
from mock_cluster import MockCluster


def test_a_closed_cluster_refuses_to_be_used():
    cluster = MockCluster()
    cluster.close()
    cluster.close()
    with pytest.raises(RuntimeError, match="closed"):
        cluster.set_down(1)
