"""Grammar engines behind one protocol (base.py) and one list of names (registry.py)."""
