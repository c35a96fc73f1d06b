"""Renders or checks a chart with Helm's own engine. Prints JSON.

    python helm_chart.py render CHART VALUES   the objects, as a list
    python helm_chart.py lint CHART VALUES     the findings of `helm lint --strict`, as a list of texts

VALUES is JSON. Values that the chart refuses end the program with status 3 and Helm's message on standard error.
"""

import json
import sys

import yaml
from helm_python import Chart
from helm_python.chart import lint
from helm_python.errors import HelmError


def render(path, values):
    with Chart.load(path) as chart:
        chart.validate_schema(values)
        manifests = chart.render(values, name="dray", namespace="dray")
    documents = (yaml.safe_load_all(text) for text in manifests.values())
    return [document for texts in documents for document in texts if document]


def findings(path, values):
    report = lint(path, values, strict=True)
    # Severity 1 is advice, such as that a chart should have an icon.
    texts = [message["error"] for message in report["messages"] if message["severity"] > 1]
    return texts + report["errors"]


def main():
    command, path, values = sys.argv[1:]
    try:
        result = {"render": render, "lint": findings}[command](path, json.loads(values))
    except HelmError as error:
        print(error, file=sys.stderr)
        sys.exit(3)
    print(json.dumps(result))


main()
