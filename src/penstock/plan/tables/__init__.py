"""Plans of queries that read tables."""
