"""What a run is, written as TOML: the model, how it is read, and how its parameters are varied."""
