"""Commands that plug into `penstock`: `bench`, `linear-road`, `pairs` and `ui`."""
