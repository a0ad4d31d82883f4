"""Names the marker of the tests that need torch and transformers."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
  config.addinivalue_line(
    'markers', 'parity: compares with transformers (extra [parity])'
  )
