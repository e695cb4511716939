"""What a run has logged, and what follows from it: throughput, latency, resources, adaptivity."""
