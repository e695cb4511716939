"""What a checkpoint of Spark holds: the committed state of every bucket, and the files beside it.

Spark's own reader of state stores is asked for the last committed micro-batch, and the files are listed; nothing is
changed. A run that is going on is not disturbed, but what it does meanwhile may show as orphans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from urllib.parse import quote

import pyarrow.fs as pafs
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from penstock.components import read_as
from penstock.engine.inspect import CheckpointState, Files, SavedBucket, SavedShare
from penstock.engine.saved_state import SavedState, SavedStore, read_saved, together
from penstock.errors import CheckpointError, StorageError
from penstock.spark.bucket_app import BucketApp
from penstock.spark.bucket_state import parts_of
from penstock.spark.checkpoint_files import last_committed, query_id
from penstock.spark.directory import Directory
from penstock.spark.file_system import file_system, qualified
from penstock.spark.left_behind import segments_directory
from penstock.spark.plan_file import Plan, read_plan
from penstock.spark.processor import BUCKET
from penstock.spark.publications import of_earlier_version
from penstock.spark.state_files import StateFiles, is_retired
from penstock.store import state as state_format
from penstock.store.differences import joined


@dataclass(frozen=True)
class _Bucket:
    label: str
    saved: SavedState
    directory: Directory
    version: int
    ended: bool
    components: dict[str, int]

    @property
    def share(self) -> str:
        return _share_of(self.label)

    @property
    def state_files(self) -> dict[str, int]:
        """With their bytes, by their paths under the directory of the query."""
        return {f"{self.label}/{file.name}": file.nbytes for file in self.directory.files}

    def in_use(self) -> set[str]:
        """Files by their paths under the directory of the query."""
        return self._segments(lambda store: store.files) | self.state_files.keys()

    def retired(self, paths: Iterable[str]) -> set[str]:
        """Of these paths those that Spark may still come back to."""
        own = {path for path in paths if path.rpartition("/")[0] == self.label}
        chains = {path for path in own if is_retired(path.rpartition("/")[2], self.directory)}
        return self._segments(lambda store: store.retired) | chains

    def _segments(self, which: Callable[[SavedStore], Iterable[str]]) -> set[str]:
        stores = self.saved.stores.items()
        return {f"{self.label}/{quote(name, safe='')}/{file}" for name, store in stores for file in which(store)}


def inspect_checkpoint(spark: SparkSession, directory: str) -> CheckpointState:
    """The last committed state of the program that is written with this checkpoint."""
    place = qualified(spark, directory).rstrip("/")
    batch = last_committed(place)
    if batch is None:
        raise CheckpointError(f"{directory} has no committed micro-batch yet; there is no state to look at")
    plan = read_plan(place)
    directories = _directories(spark, place, batch)
    current = plan.current_shares() or {_share_of(label) for label in directories}
    root = f"{segments_directory(place)}/{query_id(place) or ''}"
    # The files of shares that are gone may be gone, too.
    buckets = [_bucket(root, label, own) for label, own in directories.items() if _share_of(label) in current]
    sizes = _sizes(root)
    in_use = set().union(*(bucket.in_use() for bucket in buckets))
    retired = set().union(*(bucket.retired(sizes) for bucket in buckets)) - in_use
    gone = {path for path in sizes if _share_of(path.partition("/")[0]) not in current}
    return CheckpointState(
        engine="Spark",
        directory=directory,
        number=batch,
        format_version=max((bucket.version for bucket in buckets), default=state_format.VERSION),
        ended=any(bucket.ended for bucket in buckets),
        saved=_together([_sized(bucket, sizes) for bucket in buckets]),
        state_bytes=sum(bucket.directory.nbytes for bucket in buckets),
        in_use=_files(sizes, in_use),
        retired=_files(sizes, retired),
        gone=_files(sizes, gone),
        orphans=_files(sizes, sizes.keys() - in_use - retired - gone),
        missing=tuple(sorted(in_use - sizes.keys())),
        shares=_shares(plan, buckets),
        buckets=tuple(SavedBucket(b.label, b.state_files, len(b.directory.encoded())) for b in buckets),
        texts={name: query["text"] for name, query in plan.queries.items()} or None,
        components={name: version for bucket in buckets for name, version in bucket.components.items()},
    )


def _share_of(label: str) -> str:
    return label.rpartition(".")[0]


def _directories(spark: SparkSession, place: str, batch: int) -> dict[str, Directory]:
    """What is committed, by buckets."""
    reader = spark.read.format("statestore").option("batchId", batch)

    def rows(variable: str, *columns: str) -> list[Row]:
        return reader.option("stateVarName", variable).load(place).select("key.bucket", *columns).collect()

    try:
        earlier = rows("state", "value.state")
        tags = {row[0]: row for row in rows("tag", "value.tag", "value.fingerprint")} if earlier else {}
        changes = _if_known(lambda: rows("changes", "user_map_key.number", "user_map_value.changes")) if earlier else []
        now = _if_known(lambda: rows("directory", "value.directory"))
    except PySparkException as error:
        first = next((line for line in str(error).splitlines() if line.strip()), "no reason was given")
        raise CheckpointError(
            f"{place} has no state of Penstock that Spark can read: {first.strip()}; is it the checkpoint of another "
            "query, or are files of it gone?"
        ) from None
    found = {}
    for label, state in earlier:
        own = {number: bytes(data) for bucket, number, data in changes if bucket == label}
        _, tag, fingerprint = tags[label]
        found[label] = of_earlier_version(tag, fingerprint, bytes(state), own)
    return found | {label: Directory.decoded(bytes(data)) for label, data in now}


def _if_known(rows: Callable[[], list[Row]]) -> list[Row]:
    """What is in a variable; nothing where the state was written before there was such a one."""
    try:
        return rows()
    except PySparkException as error:
        if error.getCondition() == "STDS_INVALID_OPTION_VALUE.WITH_MESSAGE":
            return []
        raise


def _bucket(root: str, label: str, directory: Directory) -> _Bucket:
    try:
        parts = parts_of(directory, StateFiles(f"{root}/{label}", retain=0))
    except StorageError as error:
        raise StorageError(f"the state of bucket {label} cannot be read: {error}") from None
    whole = joined(parts)
    components = state_format.components_of(whole)
    state = BUCKET.read(whole)
    saved = read_saved(read_as(BucketApp, state["app"]))
    streams = {
        name: replace(stream, last_time=state["clocks"].get(name, (None, None))[1])
        for name, stream in saved.streams.items()
    }
    version = state_format.version_of(parts[-1])
    return _Bucket(label, replace(saved, streams=streams), directory, version, state["ended"], components)


def _sized(bucket: _Bucket, sizes: dict[str, int]) -> _Bucket:
    """With the bytes that the segments of each store have."""
    stores = {}
    for name, store in bucket.saved.stores.items():
        paths = (f"{bucket.label}/{quote(name, safe='')}/{file}" for file in store.files)
        stores[name] = replace(store, nbytes=store.nbytes + sum(sizes.get(path, 0) for path in paths))
    return replace(bucket, saved=replace(bucket.saved, stores=stores))


def _together(buckets: list[_Bucket]) -> SavedState:
    """Every share sees all events of its streams, so they are counted in one of them."""
    whole = together(bucket.saved for bucket in buckets)
    shares = [together(b.saved for b in buckets if b.share == share) for share in {bucket.share for bucket in buckets}]
    counts = {name: max(s.streams[name].events for s in shares if name in s.streams) for name in whole.streams}
    return replace(whole, streams={name: replace(s, events=counts[name]) for name, s in whole.streams.items()})


def _shares(plan: Plan, buckets: list[_Bucket]) -> tuple[SavedShare, ...]:
    found = []
    for share in dict.fromkeys(bucket.share for bucket in buckets):
        own = [bucket for bucket in buckets if bucket.share == share]
        queries = tuple(dict.fromkeys(name for bucket in own for name in bucket.saved.queries))
        spreads = {plan.queries[name]["spread"] for name in queries if name in plan.queries}
        found.append(SavedShare(share, ", ".join(sorted(spreads)) or "unknown", len(own), queries))
    return tuple(found)


def _sizes(directory: str) -> dict[str, int]:
    """The bytes of all files of a query, by their paths under its directory."""
    files, root = file_system(directory)
    selector = pafs.FileSelector(root, allow_not_found=True, recursive=True)
    found = files.get_file_info(selector)
    return {info.path.removeprefix(f"{root}/"): info.size for info in found if info.type is pafs.FileType.File}


def _files(sizes: dict[str, int], paths: Iterable[str]) -> Files:
    chosen = [sizes[path] for path in paths if path in sizes]
    return Files(len(chosen), sum(chosen))
