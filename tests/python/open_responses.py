"""Sends the requests of the Open Responses compliance tests to the orchestrator and checks each response and each event
with the types that are generated from that specification (https://www.openresponses.org/specification). Prints a report
as JSON: for each request its problems and what its response contains.

    python open_responses.py URL URL_OF_A_MODEL_THAT_REASONS
"""

import base64
import enum
import json
import sys
import typing
import urllib.request

import pydantic
from openresponses_types import types

# One white pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC"
TOOL = {
    "type": "function",
    "name": "weather",
    "description": "Get the current weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def event_types():
    """The model of each event by the value of its member `type`."""
    found = {}
    for name in dir(types):
        if not name.endswith("StreamingEvent"):
            continue
        model = getattr(types, name)
        kind = model.model_fields["type"].annotation
        values = [member.value for member in kind] if isinstance(kind, enum.EnumMeta) else typing.get_args(kind)
        found.update(dict.fromkeys(values, model))
    return found


EVENT_TYPES = event_types()


def problems(model, value):
    """What the type does not accept, one problem in a line."""
    try:
        model.model_validate(value)
    except pydantic.ValidationError as error:
        return [f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()]
    return []


def message(role, content):
    return {"type": "message", "role": role, "content": content}


def send(url, body):
    request = urllib.request.Request(
        f"{url}/v1/responses",
        json.dumps({"model": "agent", **body}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer test"},
    )
    return urllib.request.urlopen(request)


def respond(url, **body):
    """A response without a stream: its problems, and itself."""
    with send(url, body) as reply:
        response = json.load(reply)
    return problems(types.ResponseResource, response), response


def stream(url, **body):
    """A streamed response: the problems of all events, and the last response."""
    wrong, response, ended = [], None, False
    with send(url, {**body, "stream": True}) as reply:
        names = None
        for line in reply:
            line = line.decode().rstrip("\n")
            if line.startswith("event: "):
                names = line.removeprefix("event: ")
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                ended = True
                continue
            event = json.loads(line.removeprefix("data: "))
            kind = event["type"]
            if names != kind:
                wrong.append(f"the event {kind} has the name {names}")
            if kind in EVENT_TYPES:
                wrong += [f"{kind}: {found}" for found in problems(EVENT_TYPES[kind], event)]
            else:
                wrong.append(f"{kind}: not an event of the specification")
            response = event.get("response", response)
    if not ended:
        wrong.append("the stream does not end with [DONE]")
    return wrong, response


def shown(response):
    return [response["status"], [item["type"] for item in response["output"]]]


def run(url, thinking):
    report = {}

    def note(name, wrong, response):
        report[name] = [sorted(set(wrong)), *shown(response)]

    say = message("user", "Say hello.")
    note("basic", *respond(url, input=[say]))
    note("streaming", *stream(url, input=[say]))
    note("system", *respond(url, input=[message("system", "You are a pirate."), say]))
    ask = message("user", "What is the weather in Paris?")
    note("tool", *respond(url, input=[ask], tools=[TOOL]))
    note("tool streaming", *stream(url, input=[ask], tools=[TOOL]))
    wrong, first = respond(url, input=[ask], tools=[TOOL], tool_choice={"type": "function", "name": "weather"})
    call = first["output"][-1]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    more, second = respond(url, input=[ask, call, output], tools=[TOOL])
    note("round trip", wrong + more, second)
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    note("image", *respond(url, input=[message("user", [{"type": "input_text", "text": "Say what you see."}, picture])]))
    data = base64.b64encode(b"Title: a file").decode()
    file = {"type": "input_file", "filename": "a.txt", "file_data": f"data:text/plain;base64,{data}"}
    note("file", *respond(url, input=[message("user", [{"type": "input_text", "text": "Say its title."}, file])]))
    turns = [message("user", "My name is Alice."), message("assistant", "Hello Alice!"), say]
    note("turns", *respond(url, input=turns))
    wrong, first = respond(url, input="Remember papaya.")
    more, second = respond(url, input="Say it.", previous_response_id=first["id"])
    note("previous", wrong + more, second)
    note("thinking", *stream(thinking, input="Think first.", reasoning={"effort": "low", "summary": "auto"}))
    # The types of the specification accept no schema in a response of `json_schema`.
    form = {"format": {"type": "json_object"}}
    note("format", *respond(url, input="Say hello.", text=form, temperature=0.5, max_output_tokens=50))
    return report


print(json.dumps(run(*sys.argv[1:])))
