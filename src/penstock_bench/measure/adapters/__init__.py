"""What stands between the framework and a system under test: one adapter per system, found by entry point."""
