"""The papers' applications: Linear Road, Pairs, the call centre and the microbenchmarks."""
