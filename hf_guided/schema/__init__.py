"""JSON Schema as a language."""
