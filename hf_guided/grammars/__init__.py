"""Grammars as text, GBNF and Lark: read into rules, and checked."""
