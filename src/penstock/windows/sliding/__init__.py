"""The sliding manager: which of the registered queries are due at this tuple, or at this tick of the clock.

    calendar     looks up which queries are due
    strategy     what the calendar has in common with the strategies that are measured beside it
    groups       queries by slide, in columns
    calendar     looks up the queries that are due
    graph_nodes  the sliding graph, which `penstock graph` draws

The sliding graph is that of "Knowing When to Slide: Efficient Scheduling for Sliding Window Processing"; the calendar
is ours. The paper's own strategies are in `penstock_bench.sliding`.
"""
