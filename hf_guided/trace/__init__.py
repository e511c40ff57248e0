"""Traces: a generation, token by token, as data and as one page."""
