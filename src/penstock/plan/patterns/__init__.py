"""Plans of patterns."""
