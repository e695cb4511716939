"""The pages of `penstock ui`: a controller and a performance monitor for benchmark runs, and Linear Road's roads."""
