"""Loads any event processing system and measures it: the heir of FINCoS (Mendes' thesis, Chapter 3).

A *setup* says what to do; *drivers* send events to the *system under test*, *sinks* take its results, each in a
process of its own; an *adapter* stands between them and the system; the *controller* starts, pauses and stops them.
What they log in the run's directory is measured afterwards, and shown while it happens.

Why: docs/decisions/measuring-is-separate.md
"""
