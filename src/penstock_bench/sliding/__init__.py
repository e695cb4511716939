"""The sliding strategies that are measured beside the engine's calendar, and decide nothing in the engine.

    strategy     what all strategies offer
    plain        tests every slide
    graph        tests along the sliding graph (`SlidingGraph`), whose edges are divisibility
    optimised    the graph with extra nodes where they pay (Algorithm 3)
    approximate  close slides as one, with a stated error
    remote_time  slides by the clock of the source: two approximations

The algorithms and their names are those of "Knowing When to Slide: Efficient Scheduling for Sliding Window Processing".
"""
