"""``hf-guided serve``: the server of transformers, with constraints.

The app, its routes, the loading of models, streaming and the shape of answers are transformers' own
(``transformers serve``). What is added lies around them:

    request ──► handlers: the request (guidance.py), compiled and checked before anything runs; 400 if it cannot be
                    │
                    ▼
    transformers' handler ──► stand-ins for the model and its processor (guided_model.py), which keep to the constraint
                    │
                    ▼
    transformers' managers, ours where an answer is guided: one by one (managers.py), or side by side (batching.py)
                    │
                    ▼
    the answer, token by token, split by the constraint itself: thinking, text, calls (answer_parser.py)

Needs the extra ``serve``; nothing outside this package imports it, except the command line's ``serve``.
"""
