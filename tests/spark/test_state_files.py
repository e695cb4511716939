"""Files of state: what is written is read, damage is told, files go when no state that may be loaded needs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StorageError
from penstock.spark import state_files
from penstock.spark.directory import Directory, StateFile
from penstock.spark.state_files import StateFiles, new_chain
from penstock.store import state

from .test_segment_device import Refusing

PARTS = [state.encode({"number": number, "bytes": bytes(number)}) for number in (0, 7, 5000)]
NOTHING = Directory("", "")


def place(directory: Path, retain: int = 2) -> StateFiles:
    return StateFiles(str(directory), retain=retain)


def naming(*files: StateFile, retired: tuple[tuple[str, int], ...] = ()) -> Directory:
    chain = files[0].name.split("-")[1] if files else ""
    return Directory("tag", "f", chain, files, retired=retired)


def left(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()}


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=5))
def test_parts_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    directory = tmp_path_factory.mktemp("state") / "query" / "bucket"
    file = place(directory).write_file(3, new_chain(), parts)
    assert [bytes(part) for part in place(directory).read_file(file)] == parts
    assert file.nbytes == (directory / file.name).stat().st_size


@given(
    st.builds(
        Directory,
        st.text(),
        st.text(),
        st.text(),
        st.lists(st.builds(StateFile, st.text(), st.integers(0, 2**63 - 1), st.integers(0, 2**64 - 1))).map(tuple),
        st.lists(st.binary()).map(tuple),
        st.lists(st.tuples(st.text(), st.integers(0, 2**40))).map(tuple),
    )
)
def test_a_directory_comes_back_as_it_was(directory: Directory) -> None:
    assert Directory.decoded(directory.encoded()) == directory


@pytest.mark.parametrize("damage", ["flip", "truncate", "lengthen", "swap", "remove"])
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, damage: str) -> None:
    files = place(tmp_path)
    file, other = (files.write_file(1, "chain", [part]) for part in (PARTS[2], PARTS[1]))
    path = tmp_path / file.name
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-3] ^= 1
        path.write_bytes(data)
    elif damage == "truncate":
        path.write_bytes(data[:-4])
    elif damage == "lengthen":
        path.write_bytes(data + PARTS[0])
    elif damage == "swap":
        path.write_bytes((tmp_path / other.name).read_bytes())
    else:
        path.unlink()
    with pytest.raises(StorageError, match=file.name):
        place(tmp_path).read_file(file)


@pytest.mark.parametrize("restored", [False, True])
def test_a_retired_chain_stays_while_spark_may_go_back(tmp_path: Path, restored: bool) -> None:
    files = place(tmp_path)
    old = files.write_file(3, "old", PARTS[:1]), files.write_file(9, "old", PARTS[:1])
    now = naming(files.write_file(10, "new", PARTS[:1]), retired=(("old", 10),))
    files.retire(old, 10)
    if restored:
        files = place(tmp_path)
    for batch in (11, 12):
        files.begin(batch, now)
        assert len(left(tmp_path)) == 3, f"batch {batch}: Spark may still go back to the state of batch 9"
    files.begin(13, now)
    assert left(tmp_path) == {now.files[0].name}


@pytest.mark.parametrize("chain", ["live", "old", "another"])
def test_files_of_other_attempts_stay_while_their_state_may_be_loaded(tmp_path: Path, chain: str) -> None:
    """Of two attempts of micro-batch 10 one has retired a chain, and the other has gone on with it, or with its own."""
    winner, loser = place(tmp_path), place(tmp_path)
    now = naming(winner.write_file(10, "live", PARTS[:1]), retired=(("old", 10),))
    orphan = loser.write_file(10, chain, PARTS[1:])
    for batch in (11, 12, 13):
        place(tmp_path).begin(batch, now)
        assert place(tmp_path).read_file(orphan), f"batch {batch}: Spark may still load the other state"
    place(tmp_path).begin(14, now)
    assert left(tmp_path) == {now.files[0].name}


def test_orphans_are_found_without_a_restart_and_other_files_stay(tmp_path: Path) -> None:
    files = place(tmp_path, retain=3)
    now = naming(files.write_file(1, "live", PARTS[:1]))
    files.begin(1, now)
    place(tmp_path).write_file(1, "live", PARTS[:1])
    (tmp_path / "notes.txt").write_text("not ours")
    (tmp_path / "window").mkdir()
    for batch in range(2, 10):
        files.begin(batch, now)
    assert left(tmp_path) == {now.files[0].name, "notes.txt", "window"}


def test_a_file_that_cannot_be_deleted_does_not_stop_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = place(tmp_path, retain=1)
    files.write_file(1, "orphan", PARTS[:1])
    with monkeypatch.context() as patch:
        patch.setattr(files, "_files", Refusing(files._files))
        files.begin(4, NOTHING)
    assert left(tmp_path)
    files.begin(5, NOTHING)
    assert not left(tmp_path), "the next look has another try"


def test_a_file_is_whole_when_it_is_flushed_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is flushed with it: the directories that were made the first time, and later its own."""
    flushed = []

    def note(files: object, path: str, directories: int) -> None:
        flushed.append((Path(path).stat().st_size, directories))

    monkeypatch.setattr(state_files, "make_durable", note)
    files = place(tmp_path / "segments" / "query" / "bucket")
    sizes = [files.write_file(batch, "chain", PARTS).nbytes for batch in (1, 2)]
    assert flushed == [(sizes[0], 3), (sizes[1], 1)]


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StorageError, match="cannot be written"):
        place(tmp_path / "file").write_file(1, "chain", PARTS)
