"""All papers, in the order of the page."""

from __future__ import annotations

from penstock_bench.measure.reproduction import (
    rs_algo,
    slidem,
    sliding_graphs,
    sms,
    thesis_engines,
    thesis_joins,
    thesis_pairs,
    thesis_tuples,
)
from penstock_bench.measure.reproduction.item import Paper

THESIS = Paper(
    "thesis",
    "Performance Evaluation and Benchmarking of Event Processing Systems",
    "M. R. N. Mendes, doctoral thesis, University of Coimbra, 2013",
    "on two Xeon E5420 (8 cores at 2.5 GHz) with 16 GB; Chapter 4 with engines X, Y and Z, two products that are not"
    " named and Esper, one core each; Chapter 5 with a prototype in Java;"
    " Chapter 7 with engines X and Y, all cores",
    (*thesis_engines.ITEMS, *thesis_joins.ITEMS, *thesis_tuples.ITEMS, *thesis_pairs.ITEMS),
)

PAPERS = (slidem.PAPER, rs_algo.PAPER, sms.PAPER, sliding_graphs.PAPER, THESIS)
