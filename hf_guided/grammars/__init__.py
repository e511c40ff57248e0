"""Grammars as text, GBNF and Lark: read into rules, and checked; those of GBNF as components of a network."""
