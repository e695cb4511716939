"""Drawings of the workloads: the roads of Linear Road, and what Pairs answers."""
