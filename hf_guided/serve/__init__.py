"""``hf-guided serve``: an HTTP server with OpenAI's routes, whose answers keep to the constraint of each request.

Data flows one way:

    body ──► bodies/: checked, read into a ``Call`` (call.py)
                │
                ▼
    live_request.py: the prompt as tokens (rendering.py), the constraint compiled (guidance.py), a ``Job`` (job.py)
                │
                ▼
    engines/: one job after another, or many in shared batches ──► events, token by token
                │
                ▼
    answers/: thinking, text and tool calls; JSON, or a stream of events (answering.py)

Around it: who may ask (auth.py), how much (limits.py, request_size.py, admission.py), and how long (web_protocol.py,
thread_pool.py, compile_queue.py). Needs the extra ``serve``; nothing outside this package imports it, except the
command line's ``serve``.
"""
