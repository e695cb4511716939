"""Pairs, the benchmark of the thesis' Chapter 7: ticks, strategies, neutral XML, expected answers, the score."""
