"""Constraints: frozen values, their plain forms, Python types, tool calls, response formats."""
