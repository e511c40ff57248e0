"""dspy's signatures: its JSON adapter sends a schema to ``lm_studio/`` models, and none to ``openai/`` ones."""

import dspy
from checks import PROMPT, URL, Person, check, error_of
from dspy.utils.exceptions import AdapterParseError


class Extract(dspy.Signature):
    text: str = dspy.InputField()
    person: Person = dspy.OutputField()


@check(provider=("lm_studio", "openai"))
def a_signature(provider):
    model = dspy.LM(f"{provider}/demo", api_base=URL, api_key="none", cache=False, num_retries=0, temperature=0)
    with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
        if provider == "lm_studio":
            person = dspy.Predict(Extract)(text=PROMPT).person
            assert isinstance(person, Person)
        else:
            error_of(AdapterParseError, lambda: dspy.Predict(Extract)(text=PROMPT))
    assert ("response_format" in model.history[-1]["kwargs"]) == (provider == "lm_studio")
