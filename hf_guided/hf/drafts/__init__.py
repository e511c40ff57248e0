"""Draft tokens, which the model verifies many at once: see base.py."""
