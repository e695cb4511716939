"""When a batch of keys is looked up in a table partition by partition, and when as it comes.

Looking up partition by partition (batch grace hash join) reads each part of the table once for the whole batch, if
enough keys meet in it; putting the keys in order costs a pass over them. Measured by `penstock bench join-table`.

Why: docs/decisions/table-partitions-are-pages.md
"""

GRACE_ROWS = 262144
"""From so many rows on a table is worth partitioning batches for: smaller ones are in the cache anyway."""
GRACE_EVENTS = 512
"""And from so many keys of a batch for each partition on: with fewer, what one brings into the cache serves no other.
At 256 both ways are level, at 1,024 partitions first are 1.4 times as fast."""
