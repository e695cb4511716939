"""Databases that tables are kept in: PostgreSQL, and SQLite in a file."""
