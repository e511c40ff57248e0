"""Grammar engines that share one protocol (base.py) and one list of names (registry.py)."""
