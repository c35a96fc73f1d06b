"""Validates documents against JSON schemas (draft 2020-12), and prints the problems as a JSON list.

Standard input has a JSON list of objects: the name of the document, its schema, and its value. A schema that is itself
invalid is a problem, too.
"""

import json
import sys

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError


def problems(name, schema, value):
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        yield f"{name}: the schema is invalid: {error.message}"
        return
    validator = Draft202012Validator(schema, format_checker=FormatChecker())
    for error in validator.iter_errors(value):
        yield f"{name}: {error.json_path}: {error.message}"


found = [problem for document in json.load(sys.stdin) for problem in problems(**document)]
print(json.dumps(found))
