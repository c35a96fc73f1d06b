"""Sends requests whose model fails after a tool ran, with OpenAI's own client and its own retries, and prints the statuses as JSON.

    python retry_client.py URL
"""

import json
import sys

import openai


def status(request, **body):
    try:
        request(model="agent", **body)
    except openai.APIStatusError as error:
        return error.status_code
    return None


def main():
    (url,) = sys.argv[1:]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    messages = [{"role": "user", "content": "broken"}]
    statuses = {
        "chat": status(client.chat.completions.create, messages=messages),
        "responses": status(client.responses.create, input="broken"),
    }
    print(json.dumps(statuses))


main()
