"""What shows who callers are, and what shows them who the server is: files that are read again when they change."""
