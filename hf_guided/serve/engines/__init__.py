"""Engines: they generate the answers of the server's jobs."""
