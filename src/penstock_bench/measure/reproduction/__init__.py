"""The papers, reproduced: what they measured beside what was measured here, as one page with figures.

It reads results and measures nothing: the JSON of our own benches (`DIR/NAME.json`, made by `penstock bench NAME
--output DIR`) and the runs of microbenchmarks (`DIR/micro/NAME/.../summary.json`, with their logs). What is not there
is said. The same results give the same page and figures to the byte.
"""

from penstock_bench.measure.reproduction.page import write

__all__ = ["write"]
