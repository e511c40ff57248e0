"""Functions that models may call."""

from __future__ import annotations


def weather(city: str, unit: str = "c") -> str:
    """Tells the weather.

    Args:
        city: The city.
        unit: The unit. (choices: ["c", "f"])
    """
    return city + unit


def get_weather(city: str) -> str:
    """Looks up the weather.

    Args:
        city: The city.
    """
    return city


def now() -> str:
    """Tells the time."""
    return ""
