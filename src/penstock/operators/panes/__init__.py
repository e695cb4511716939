"""Windows made of panes."""
