"""From a request's JSON to a ``Call``: everything that can be checked without the model.

    JSON ──► fields.py: no NaN, no lone surrogates, not too deep; fields accepted without effect, refused, or unknown
      │
      ▼
    one pydantic model per route (chat.py, completion.py, response.py): the names and types of its fields
      │
      ▼
    generation.py, and the route's own file: values against the limits and the model ──► ``Call``

Every problem is a ``RequestRefused`` that names its field.
"""
