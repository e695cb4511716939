"""Stores of a bucket over static data: they leave nothing behind, closed or forgotten."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import pytest

from penstock.spark.stores import ScratchStores
from penstock.store.budget import Budget


@pytest.mark.parametrize("closed", [True, False])
def test_the_scratch_directory_goes_with_the_stores(
    closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stores = ScratchStores(Budget(1 << 20))
    stores.create_device("blocks").write(b"x" * 100)
    assert list(tmp_path.rglob("*.blocks"))
    if closed:
        stores.close()
    del stores
    gc.collect()
    assert not list(tmp_path.iterdir())
