"""Stores in SQL databases: one schema, one set of statements."""
