"""Calls the orchestrator with OpenAI's own client and prints a report as JSON.

    python openai_client.py URL KEY {works,fails,breaks}
"""

import json
import sys

import openai


def error_of(call):
    """The class, status, message and code of the error that a call raises, or None."""
    try:
        call()
    except openai.APIError as error:
        status = getattr(error, "status_code", None)
        return [type(error).__name__, status, error.message, error.code]
    return None


def works(plain, azure, messages):
    whole = plain.chat.completions.create(model="helper", messages=messages)
    chunks = list(plain.chat.completions.create(model="helper", messages=messages, stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    stages = [
        stage
        for delta in deltas
        for stage in (getattr(delta, "custom_content", None) or {}).get("stages", [])
    ]
    with plain.chat.completions.stream(model="helper", messages=messages) as stream:
        streamed = stream.get_final_completion().choices[0].message.content
    of_dial = azure.chat.completions.create(
        model="quick_apps2",
        messages=messages,
        extra_headers={"X-DIAL-APPLICATION-ID": "applications/b/app"},
    )
    return {
        "models": [model.id for model in plain.models.list()],
        "model": plain.models.retrieve("helper").id,
        "content": whole.choices[0].message.content,
        "custom": whole.choices[0].message.custom_content,
        "usage": whole.usage.total_tokens,
        "pieces": [delta.content for delta in deltas if delta.content],
        "stages": stages,
        "finish": chunks[-1].choices[0].finish_reason,
        "counted": chunks[-1].usage.total_tokens,
        "streamed": streamed,
        "dial": of_dial.choices[0].message.content,
    }


def fails(plain, azure, messages):
    def chat(client, **more):
        return lambda: client.chat.completions.create(**{"model": "helper", "messages": messages, **more})

    stranger = plain.with_options(api_key="unknown")
    return {
        "agent": error_of(chat(plain)),
        "stream": error_of(chat(plain, stream=True)),
        "model": error_of(chat(plain, model="none")),
        "key": error_of(chat(stranger)),
        "range": error_of(chat(plain, temperature=3)),
        "order": error_of(chat(plain, messages=[])),
        "n": error_of(chat(azure, model="quick_apps2", n=2)),
    }


def breaks(plain, _azure, messages):
    pieces = []

    def stream():
        for chunk in plain.chat.completions.create(model="helper", messages=messages, stream=True):
            pieces.extend(choice.delta.content for choice in chunk.choices if choice.delta.content)

    error = error_of(stream)
    return {"error": error, "pieces": pieces}


def main():
    url, key, what = sys.argv[1:]
    plain = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
    azure = openai.AzureOpenAI(
        azure_endpoint=url, api_key=key, api_version="2025-01-01-preview", max_retries=0
    )
    messages = [{"role": "user", "content": "hi"}]
    run = {"works": works, "fails": fails, "breaks": breaks}[what]
    print(json.dumps(run(plain, azure, messages)))


main()
