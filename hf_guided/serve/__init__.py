"""``hf-guided serve``: an HTTP server with OpenAI's routes, whose answers keep to the constraint of each request.

Data flows one way:

    body ──► bodies/: checked, read into a ``Call`` (job.py)
                │
                ▼
    answering.py: the prompt as tokens (models.py), the constraint compiled (guidance.py), a ``Job`` (job.py)
                │
                ▼
    engines/: one job after another, or many in shared batches ──► events, token by token
                │
                ▼
    answers/: thinking, text and tool calls; JSON, or a stream of events

Around it: app.py has the routes, limits.py says who may ask and how much, error_responses.py makes every error an
answer, and options.py holds what the operator sets. Needs the extra ``serve``; nothing outside this package imports it,
except the command line's ``serve``.
"""
