"""The list of instruments: every name is there, is explained, and is loaded without the rest of the engine."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from penstock import instruments


@pytest.mark.parametrize("name", instruments.__all__)
def test_each_instrument_is_there_and_is_explained(name: str) -> None:
    assert getattr(instruments, name) is not None
    assert re.search(rf"\b{name}\b", instruments.__doc__ or "")


def test_a_name_that_is_none_is_told() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        instruments.Nothing  # noqa: B018


def test_an_instrument_is_loaded_when_it_is_used() -> None:
    code = "import sys; from penstock.instruments import Histogram; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
