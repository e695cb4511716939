"""The tables of an app."""
