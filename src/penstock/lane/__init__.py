"""The lane: windows that are looked at with every event, run by one compiled loop over an instruction list.

A program is a list of instructions; each names a compiled operation and the addresses of the arrays that it works on.
The arrays belong to stores, groups and states. `words` says what a context holds, `machine` runs a program, and the
operations are in `leaving`, `sums`, `counts` and `extremes`.
"""
