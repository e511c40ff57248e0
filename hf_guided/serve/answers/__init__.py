"""From the events of an engine to what a client reads: text, thinking and tool calls, as JSON or as a stream.

NewTokens ──► reader.py: bytes, stop strings (stop_strings.py), thinking, text and calls (call_reader.py) ──► parts
                  │
                  ▼
answer.py: one answer as it grows: its finish reason, its log probabilities (logprobs.py), its tokens
                  │
                  ▼
chat.py, completion.py, response.py: the same answers in the shapes of three routes
"""
