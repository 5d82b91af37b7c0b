"""A registry of schemas in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from serializing import forget_schemas
from stub_registry import StubRegistry, running_stub


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    with running_stub() as stub:
        yield stub


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets the schemas that the registry has answered."""
    return lambda: forget_schemas(monkeypatch)
