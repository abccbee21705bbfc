"""What tests of rollouts share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _compile_quickly(compile_quickly):
    """In all of them."""
