"""Plans of joins."""
