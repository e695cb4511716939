"""Live objects are used once, only under the committed tag, and do not pile up."""

from __future__ import annotations

import gc
import weakref

from penstock.spark.live import SETTLED_AFTER, LiveObjects


def test_an_entry_is_taken_once() -> None:
    cache = LiveObjects[str]()
    cache.put("a", query="q", batch=1, live="object")
    assert cache.take("a") == "object"
    assert cache.take("a") is None


def test_another_tag_finds_nothing() -> None:
    cache = LiveObjects[str]()
    cache.put("a failed attempt", query="q", batch=1, live="object")
    assert cache.take("the committed one") is None


def test_entries_of_buckets_that_moved_away_are_dropped() -> None:
    cache = LiveObjects[int]()
    for batch in range(100):
        for bucket in range(3):
            cache.put(f"{bucket}@{batch}", query="q", batch=batch, live=bucket)
    assert len(cache) == 6


def test_a_replayed_batch_drops_what_came_after_it() -> None:
    cache = LiveObjects[int]()
    cache.put("later", query="q", batch=9, live=9)
    cache.put("replayed", query="q", batch=7, live=7)
    assert (cache.take("later"), cache.take("replayed")) == (None, 7)


def test_a_worker_that_has_settled_leaves_libraries_alone_and_can_still_collect_live_objects() -> None:
    class Cyclic:
        def __init__(self) -> None:
            self.itself = self

    cache = LiveObjects[Cyclic]()
    before = gc.get_freeze_count()
    tag, first = "first", Cyclic()
    followed = weakref.ref(first)
    cache.put(tag, query="q", batch=0, live=first)
    del first
    for batch in range(1, SETTLED_AFTER):
        cache.put(tag, query="q", batch=batch, live=cache.take(tag) or Cyclic())
    assert followed() is not None
    assert cache.take(tag) is None, "it is restored once more"
    assert gc.get_freeze_count() > before
    assert followed() is None
    gc.unfreeze()


def test_queries_do_not_drop_each_other() -> None:
    cache = LiveObjects[str]()
    cache.put("a", query="slow", batch=1, live="kept")
    cache.put("b", query="fast", batch=1000, live="other")
    assert cache.take("a") == "kept"
