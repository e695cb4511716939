from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import BudgetError, CheckpointError, StorageError
from penstock.store.budget import Budget
from penstock.store.manager import StoreManager
from penstock.store.state import decode, encode

from .rows import COLUMNS, batch, expected, read_all


def manager(directory: Path | None, block_size: int = 256, budget: int = 1 << 20) -> StoreManager:
    return StoreManager(Budget(budget), directory, block_size)


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("*.blocks")}


@pytest.mark.parametrize("on_disk", [True, False])
def test_all_stores_go_through_a_checkpoint_together(tmp_path: Path, on_disk: bool) -> None:
    directory = tmp_path / "blocks" if on_disk else None
    stores = manager(directory)
    windows = [stores.create_fifo(name, COLUMNS, 2) for name in ("calls by site", "calls/agent [24 h]")]
    paging = stores.create_device("max of q1")
    address = paging.write(b"spilled")
    for window in windows:
        window.append(batch(0, 200))
    assert stores.metrics.blocks_written == 1 + sum(w.metrics.blocks_written for w in windows) > 1
    assert stores.nbytes_total > 0
    saved = encode(stores.snapshot())
    stores.sync()
    stores.commit()
    for window in windows:
        window.append(batch(200, 100))
    stores.close()
    assert stores.budget.used == 0

    again = manager(directory, block_size=512)
    windows = [again.create_fifo(name, COLUMNS, 3) for name in ("calls by site", "calls/agent [24 h]")]
    paging = again.create_device("max of q1")
    again.restore(decode(saved))
    for window in windows:
        assert read_all(window.cursor(), 200) == expected(0, 200)
    assert bytes(paging.read(address)) == b"spilled"
    again.close()


def test_a_run_without_checkpoints_leaves_no_blocks_behind(tmp_path: Path) -> None:
    stores = manager(tmp_path)
    stores.create_fifo("a", COLUMNS).append(batch(0, 5000))
    stores.create_fifo("b", COLUMNS).append(batch(0, 5000))
    assert files(tmp_path) == {"a.blocks", "b.blocks"}
    stores.drop("a")
    assert files(tmp_path) == {"b.blocks"}
    stores.close()
    assert files(tmp_path) == set()


def test_a_start_that_is_given_up_leaves_the_checkpoint_alone(tmp_path: Path) -> None:
    stores = manager(tmp_path)
    stores.create_fifo("a", COLUMNS).append(batch(0, 5000))
    stores.create_fifo("b", COLUMNS).append(batch(0, 5000))
    saved = encode(stores.snapshot())
    stores.sync()
    stores.commit()
    stores.close()

    refused = manager(tmp_path)
    refused.create_fifo("a", COLUMNS)
    refused.close()

    again = manager(tmp_path)
    window = again.create_fifo("a", COLUMNS)
    again.restore(decode(saved))
    assert read_all(window.cursor(), 5000) == expected(0, 5000)


def test_files_that_no_checkpoint_names_are_removed(tmp_path: Path) -> None:
    stores = manager(tmp_path)
    stores.create_fifo("kept", COLUMNS).append(batch(0, 5000))
    stores.create_fifo("dropped", COLUMNS).append(batch(0, 5000))
    saved = encode(stores.snapshot())
    stores.commit()
    stores.drop("dropped")
    assert files(tmp_path) == {"kept.blocks", "dropped.blocks"}, "the checkpoint still names it"
    stores.close()
    (tmp_path / "orphan.blocks").write_bytes(b"of a crashed process")
    (tmp_path / "notes.txt").write_text("not ours")

    again = manager(tmp_path)
    again.create_fifo("kept", COLUMNS)
    again.restore(decode(saved))
    assert files(tmp_path) == {"kept.blocks", "dropped.blocks"}
    again.snapshot()
    again.commit()
    assert files(tmp_path) == {"kept.blocks"}
    assert (tmp_path / "notes.txt").exists()


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    stores = manager(tmp_path)
    with pytest.raises(CheckpointError, match="in use by another process"):
        manager(tmp_path)
    stores.close()
    manager(tmp_path).close()


def test_a_directory_is_free_after_its_owner_was_killed(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from penstock.store.budget import Budget; from penstock.store.manager import StoreManager\n"
        "manager = StoreManager(Budget(1 << 20), Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert ended.returncode == -9
    manager(tmp_path).close()


def test_an_unusable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be used for blocks"):
        manager(tmp_path / "file" / "blocks")


def test_a_store_that_does_not_fit_the_budget_takes_nothing(tmp_path: Path) -> None:
    stores = manager(tmp_path, budget=300)
    with pytest.raises(BudgetError, match="memory budget of at least"):
        stores.create_fifo("window", COLUMNS)
    assert stores.budget.describe() == {}
