"""From the events of an engine to what a client reads: text, thinking and tool calls, as JSON or as a stream.

NewTokens ──► parts.py: bytes, stop strings, thinking, text and calls ──► parts
                  │
                  ▼
answer.py: one answer as it grows: its finish reason, its log probabilities, its tokens
                  │
                  ▼
writers.py (chats, completions), response.py: the same answers in the shapes of three routes
"""
