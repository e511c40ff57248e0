"""From a request's JSON to a ``Call``: everything that can be checked without the model.

    JSON ──► plain_json.py: no NaN, no lone surrogates, not too deep
      │
      ▼
    one pydantic model per route (chat.py, completion.py, response.py, tokens.py): the names and types of its fields
      │      parts.py: fields that are accepted without effect, refused by name, or unknown
      ▼
    sampling.py, constraint_fields.py, messages.py ...: values against the limits and the model ──► ``Call``

Every problem is a ``RequestRefused`` that names its field (refusals.py).
"""

from .chat import read_chat as read_chat
from .completion import read_completion as read_completion
from .defaults import Defaults as Defaults
from .response import read_response as read_response
from .thinking import SWITCHES as SWITCHES
from .tokens import Detokenize as Detokenize
from .tokens import Tokenize as Tokenize
from .tokens import read_detokenize as read_detokenize
from .tokens import read_tokenize as read_tokenize
