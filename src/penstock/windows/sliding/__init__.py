"""The sliding manager: which of the registered queries are due at this tuple, or at this tick of the clock.

    strategy     what all strategies offer, and how their work is counted
    groups       queries by slide, in columns
    plain        tests every slide
    graph        tests along the sliding graph (graph_nodes), whose edges are divisibility
    optimised    the graph with extra nodes where they pay (Algorithm 3)
    calendar     looks up the queries that are due; the strategy that the engine uses
    approximate  close slides as one, with a stated error
    remote_time  slides by the clock of the source: two approximations that are measured and decide nothing

The algorithms and their names are those of "Knowing When to Slide: Efficient Scheduling for Sliding Window Processing";
the calendar is ours.
"""
