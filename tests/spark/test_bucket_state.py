"""The state of a bucket over many micro-batches, without Spark: attempts fail, race, move and are rolled back.

Whatever Spark may still load is restored and compared with the tree that was saved.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CheckpointError, StorageError
from penstock.spark import bucket_state, state_files
from penstock.spark.bucket_state import BucketState
from penstock.spark.directory import Directory
from penstock.spark.publications import of_earlier_version
from penstock.store import differences, state
from penstock.store.differences import Differences

BUCKET = "share-0.1"
RETAINED = 3
Tree = dict[str, Any]


class InMemory:
    """Publications of all micro-batches; what is published in one of them is seen by the next."""

    def __init__(self) -> None:
        self.batch = 0
        self.published: dict[tuple[str, int], bytes] = {}

    def committed(self, bucket: str) -> Directory | None:
        data = self.published.get((bucket, self.batch - 1))
        return None if data is None else Directory.decoded(data)

    def publish(self, bucket: str, directory: Directory) -> int:
        data = directory.encoded()
        self.published[bucket, self.batch] = data
        return len(data)


class Attempts:
    """Attempts of micro-batches in `place`. `trees` is what was saved with each; the state has `size` numbers, and
    `change` changes them."""

    def __init__(self, place: Path | None, size: int, change: Callable[[Tree], None]) -> None:
        self.place = None if place is None else str(place)
        self.publications = InMemory()
        self.trees: dict[int, Tree] = {-1: {"numbers": np.zeros(size, np.int64), "text": ""}}
        self.live: dict[str, BucketState] = {}
        self._change = change

    def take(self, *, restored: bool) -> BucketState:
        committed = self.publications.committed(BUCKET)
        live = None if committed is None else self.live.pop(committed.tag, None)
        if live is not None and not restored:
            return live
        own = BucketState(self.place, "f", retain=RETAINED)
        if committed is not None:
            tree, _ = own.restore(committed)
            assert_same(tree, self.trees[self.publications.batch - 1])
            own.resumed(lambda: tree)
        return own

    def attempt(self, batch: int, *, restored: bool = False, publish: bool = True) -> Directory:
        self.publications.batch = batch
        own = self.take(restored=restored)
        own.begin(batch)
        before = self.trees[batch - 1]
        tree = {**before, "numbers": before["numbers"].copy(), "text": f"batch {batch}"}
        self._change(tree)
        saved = own.save(tree)
        if publish:
            self.trees[batch] = tree
            self.publications.publish(BUCKET, saved.directory)
            self.live[saved.directory.tag] = own
        return saved.directory

    def check(self, last: int) -> None:
        """All states that Spark may go back to are whole."""
        for batch in range(max(0, last - RETAINED), last + 1):
            data = self.publications.published[BUCKET, batch]
            own = BucketState(self.place, "f", retain=RETAINED)
            assert_same(own.restore(Directory.decoded(data))[0], self.trees[batch])


def assert_same(found: Tree, expected: Tree) -> None:
    assert np.array_equal(found["numbers"], expected["numbers"])
    assert found["text"] == expected["text"]


@pytest.fixture(autouse=True, scope="module")
def quickly() -> Iterator[None]:
    """Nothing is flushed to the disk: no machine dies here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket_state, "INSIDE", 1 << 14)  # `faults` has another
        patch.setattr(state_files, "make_durable", lambda files, path, directories: None)
        yield


def few(tree: Tree) -> None:
    tree["numbers"][7] += 1


def some(tree: Tree) -> None:
    tree["numbers"][: len(tree["numbers"]) // 3] += 1


def everything(tree: Tree) -> None:
    tree["numbers"] += 1


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([10, 1500, 20_000]),
    st.sampled_from([few, some, everything]),
    st.sampled_from([0, 1 << 14]),
)
def test_all_that_spark_may_load_is_there(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int, change: Callable[[Tree], None], inside: int
) -> None:
    chance = random.Random(seed)
    place = tmp_path_factory.mktemp("bucket")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket_state, "INSIDE", inside)
        run = Attempts(place, size, change)
        batch = furthest = 0
        for _ in range(25):
            while chance.random() < 0.3:
                run.attempt(batch, restored=chance.random() < 0.5, publish=False)
            for _ in range(chance.choice([1, 1, 2])):  # of two attempts either is the one that is loaded next
                run.attempt(batch, restored=chance.random() < 0.3)
            furthest = max(furthest, batch)
            if batch == furthest:
                run.check(batch)
            goes_back = furthest > RETAINED and chance.random() < 0.2
            batch = max(batch - chance.randrange(RETAINED), furthest - RETAINED + 1) if goes_back else batch + 1


@pytest.mark.parametrize("change", [few, some, everything])
def test_files_stay_few_and_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Tree], None]
) -> None:
    """Also of a bucket that has lived long, and with a worker that dies now and then."""
    monkeypatch.setattr(bucket_state, "INSIDE", 0)
    run = Attempts(tmp_path, 20_000, change)
    most = 0
    for batch in range(400):
        before = len(list(tmp_path.iterdir()))
        directory = run.attempt(batch, restored=batch % 17 == 0)
        size = state.encode(run.trees[batch])
        assert len(list(tmp_path.iterdir())) <= before + 1, "one file for each micro-batch, at most"
        assert len(directory.files) <= differences.MOST_PARTS
        assert directory.nbytes <= 2 * len(size) + differences.PAGE
        assert len(directory.encoded()) < 16_000
        most = max(most, len(list(tmp_path.iterdir())))
    assert most <= 2 * differences.MOST_PARTS + RETAINED + 2
    run.check(399)


def test_a_small_state_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "SMALL", 1 << 14)
    run = Attempts(tmp_path, 1000, everything)
    for batch in range(20):
        directory = run.attempt(batch)
        assert (len(directory.inside), directory.nbytes < bucket_state.INSIDE) == (1, True)
    assert not list(tmp_path.iterdir())
    run.check(19)


def test_small_changes_are_gathered_in_one_file(tmp_path: Path) -> None:
    """A few micro-batches write no file, and then one does for all of them."""
    run = Attempts(tmp_path, 20_000, few)
    files = [len(run.attempt(batch).files) for batch in range(13)]
    assert files == [1 + batch // 4 for batch in range(13)]
    run.check(12)


def test_a_state_that_shrinks_and_grows_changes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "SMALL", 1 << 14)

    def is_large(batch: int) -> bool:
        return batch % 10 < 5 and batch < 30

    def change(tree: Tree) -> None:
        tree["numbers"] = np.arange(20_000 if is_large(run.publications.batch) else 50)

    run = Attempts(tmp_path, 50, change)
    for batch in range(30 + RETAINED):
        directory = run.attempt(batch, restored=batch % 4 == 0)
        assert bool(directory.files) == is_large(batch)
        run.check(batch)
    assert not list(tmp_path.iterdir())


def test_without_a_place_all_of_it_is_in_the_directory(tmp_path: Path) -> None:
    run = Attempts(None, 20_000, few)
    for batch in range(5):
        directory = run.attempt(batch, restored=batch == 3)
        assert (directory.files, len(directory.inside)) == ((), 1)
        run.check(batch)
    with pytest.raises(CheckpointError, match="give it with checkpoint="):
        BucketState(None, "f", retain=RETAINED).restore(Attempts(tmp_path, 20_000, few).attempt(0))


def test_the_state_of_an_earlier_version_goes_on_in_a_file(tmp_path: Path) -> None:
    """Changes have numbers, which sort by their digits in another order."""
    log, parts = Differences(), []
    run = Attempts(tmp_path, 20_000, few)
    tree = run.trees[-1]
    for _ in range(12):
        parts.append(log.part(tree).data)
        log.keep()
        few(tree)
    tree["numbers"][7] -= 1
    changes = dict(sorted(enumerate(parts[1:], 1), key=lambda numbered: str(numbered[0])))
    run.publications.published[BUCKET, -1] = of_earlier_version("old", "f", parts[0], changes).encoded()
    directory = run.attempt(0)
    assert len(directory.files) == 1
    assert len(list(tmp_path.iterdir())) == 1
    run.check(0)
    for batch in range(1, 5):
        run.attempt(batch, restored=True)
        run.check(batch)


def test_a_part_that_is_gone_is_told(tmp_path: Path) -> None:
    directory = Attempts(tmp_path, 20_000, few).attempt(0)
    (file,) = tmp_path.iterdir()
    file.unlink()
    with pytest.raises(StorageError, match=f"{file.name} is missing"):
        BucketState(str(tmp_path), "f", retain=RETAINED).restore(directory)
    with pytest.raises(StorageError, match="has no parts"):
        BucketState(str(tmp_path), "f", retain=RETAINED).restore(replace(directory, files=()))
