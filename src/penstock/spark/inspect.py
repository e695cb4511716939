"""What a checkpoint of Spark holds: the committed state of every bucket, and the segments beside it.

Spark's own reader of state stores is asked for the last committed micro-batch, and the files are listed; nothing is
changed. A run that is going on is not disturbed, but what it does meanwhile may show as orphans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from urllib.parse import quote

import pyarrow.fs as pafs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, Row, SparkSession

from penstock.components import read_as
from penstock.engine.inspect import CheckpointState, Files, SavedShare
from penstock.engine.saved_state import SavedState, read_saved, together
from penstock.errors import CheckpointError
from penstock.spark.bucket_app import BucketApp
from penstock.spark.checkpoint_files import last_committed, query_id
from penstock.spark.file_system import file_system, qualified
from penstock.spark.left_behind import segments_directory
from penstock.spark.plan_file import Plan, read_plan
from penstock.spark.processor import BUCKET
from penstock.store import state as state_format
from penstock.store.differences import joined


@dataclass(frozen=True)
class _Bucket:
    label: str
    saved: SavedState
    nbytes: int
    version: int
    ended: bool
    components: dict[str, int]

    @property
    def share(self) -> str:
        return self.label.rpartition(".")[0]

    def files(self, which: Callable[[SavedState], Iterable[tuple[str, str]]]) -> set[str]:
        """Segments by their paths under the directory of the query."""
        return {f"{self.label}/{quote(store, safe='')}/{name}" for store, name in which(self.saved)}


def inspect_checkpoint(spark: SparkSession, directory: str) -> CheckpointState:
    """The last committed state of the program that is written with this checkpoint."""
    place = qualified(spark, directory).rstrip("/")
    batch = last_committed(place)
    if batch is None:
        raise CheckpointError(f"{directory} has no committed micro-batch yet; there is no state to look at")
    plan = read_plan(place)
    everything = _buckets(spark, place, batch)
    current = plan.current_shares() or {bucket.share for bucket in everything}
    buckets = [bucket for bucket in everything if bucket.share in current]
    sizes = _sizes(place, query_id(place) or "")
    in_use = set().union(*(bucket.files(_live) for bucket in buckets))
    retired = set().union(*(bucket.files(_retired) for bucket in buckets))
    gone = {path for path in sizes if path.partition("/")[0].rpartition(".")[0] not in current}
    return CheckpointState(
        engine="Spark",
        directory=directory,
        number=batch,
        format_version=max((bucket.version for bucket in buckets), default=state_format.VERSION),
        ended=any(bucket.ended for bucket in buckets),
        saved=_together([_sized(bucket, sizes) for bucket in buckets]),
        state_bytes=sum(bucket.nbytes for bucket in everything),
        in_use=_files(sizes, in_use),
        retired=_files(sizes, retired),
        gone=_files(sizes, gone),
        orphans=_files(sizes, sizes.keys() - in_use - retired - gone),
        missing=tuple(sorted(in_use - sizes.keys())),
        shares=_shares(plan, buckets),
        texts={name: query["text"] for name, query in plan.queries.items()} or None,
        components={name: version for bucket in buckets for name, version in bucket.components.items()},
    )


def _buckets(spark: SparkSession, place: str, batch: int) -> list[_Bucket]:
    reader = spark.read.format("statestore").option("batchId", batch)
    try:
        whole = reader.option("stateVarName", "state").load(place).select("key.bucket", "value.state").collect()
        later = _changes(reader.option("stateVarName", "changes"), place)
    except PySparkException as error:
        first = next((line for line in str(error).splitlines() if line.strip()), "no reason was given")
        raise CheckpointError(
            f"{place} has no state of Penstock that Spark can read: {first.strip()}; is it the checkpoint of another "
            "query, or are files of it gone?"
        ) from None
    parts = {label: [bytes(data)] for label, data in whole}
    for label, _, data in sorted(later, key=lambda row: row[:2]):
        parts[label].append(bytes(data))
    return [_bucket(label, own) for label, own in parts.items()]


def _changes(reader: DataFrameReader, place: str) -> list[Row]:
    """Buckets, numbers and changes. Micro-batches of an earlier Penstock have only whole state."""
    try:
        return reader.load(place).select("key.bucket", "user_map_key.number", "user_map_value.changes").collect()
    except PySparkException as error:
        if error.getCondition() == "STDS_INVALID_OPTION_VALUE.WITH_MESSAGE":
            return []
        raise


def _bucket(label: str, parts: list[bytes]) -> _Bucket:
    whole = joined(parts)
    components = state_format.components_of(whole)
    state = BUCKET.read(whole)
    saved = read_saved(read_as(BucketApp, state["app"]))
    streams = {
        name: replace(stream, last_time=state["clocks"].get(name, (None, None))[1])
        for name, stream in saved.streams.items()
    }
    nbytes, version = sum(map(len, parts)), state_format.version_of(parts[-1])
    return _Bucket(label, replace(saved, streams=streams), nbytes, version, state["ended"], components)


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


def _live(saved: SavedState) -> Iterable[tuple[str, str]]:
    return ((name, file) for name, store in saved.stores.items() for file in store.files)


def _retired(saved: SavedState) -> Iterable[tuple[str, str]]:
    return ((name, file) for name, store in saved.stores.items() for file in store.retired)


def _sizes(place: str, query: str) -> dict[str, int]:
    """The bytes of all segments of a query, by their paths under its directory."""
    files, root = file_system(f"{segments_directory(place)}/{query}")
    selector = pafs.FileSelector(root, allow_not_found=True, recursive=True)
    found = files.get_file_info(selector)
    return {info.path.removeprefix(f"{root}/"): info.size for info in found if info.type is pafs.FileType.File}


def _files(sizes: dict[str, int], paths: Iterable[str]) -> Files:
    chosen = [sizes[path] for path in paths if path in sizes]
    return Files(len(chosen), sum(chosen))
