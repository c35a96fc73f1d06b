"""Uses files, responses and conversations of the orchestrator with OpenAI's own client, and prints a report as JSON.

    python responses_client.py URL
"""

import hashlib
import json
import sys

import openai
from pydantic import BaseModel


class City(BaseModel):
    name: str
    degrees: int


TOOL = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


def weather(city):
    return f"sunny in {city}"


def missing(call):
    """Whether a call fails because the object does not exist."""
    try:
        call()
    except openai.NotFoundError:
        return True
    return False


def creates(client):
    whole = client.responses.create(
        model="agent", input="hello", instructions="Be brief.", metadata={"a": "b"}, max_output_tokens=99
    )
    found = client.responses.retrieve(whole.id)
    items = client.responses.input_items.list(whole.id)
    next_response = client.responses.create(model="agent", input="and?", previous_response_id=whole.id)
    question, more = ({"role": "user", "content": text} for text in ("hello", "and?"))
    reference = {"type": "item_reference", "id": whole.output[-1].id}
    referring = lambda: client.responses.create(model="agent", input=[question, reference, more])
    named = referring()
    kept = client.responses.input_items.list(named.id, order="asc").data[1]
    client.responses.delete(whole.id)
    return {
        "named": [named.output_text, kept.content[0].text, missing(referring)],
        "text": whole.output_text,
        "status": whole.status,
        "same": found == whole,
        "counted": whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens > 0,
        "metadata": whole.metadata,
        "items": [item.content[0].text for item in items],
        "next": next_response.output_text,
        "deleted": missing(lambda: client.responses.retrieve(whole.id)),
    }


def streams(client):
    with client.responses.stream(model="agent", input="hello") as stream:
        events = list(stream)
        final = stream.get_final_response()
    raw = client.responses.create(model="agent", input="hello", stream=True)
    numbers = [event.sequence_number for event in raw]
    return {
        "kinds": list(dict.fromkeys(event.type for event in events)),
        "text": final.output_text,
        "numbered": numbers == list(range(len(numbers))),
    }


def parses(client):
    parsed = client.responses.parse(model="agent", input="Paris as JSON", text_format=City)
    return parsed.output_parsed.model_dump()


def loops(client):
    """A tool of the client and a tool of the agent, over two requests."""
    response = client.responses.create(model="agent", input="the weather", tools=[TOOL])
    rounds = 0
    while calls := [item for item in response.output if item.type == "function_call"]:
        rounds += 1
        outputs = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": weather(**json.loads(call.arguments)),
            }
            for call in calls
        ]
        response = client.responses.create(
            model="agent", input=outputs, previous_response_id=response.id, tools=[TOOL]
        )
    with client.responses.stream(model="agent", input="the weather", tools=[TOOL]) as stream:
        kinds = {event.type for event in stream}
    return {
        "rounds": rounds,
        "text": response.output_text,
        "streamed": "response.function_call_arguments.done" in kinds,
    }


def resumes(client):
    """A stream in the background that breaks off and is resumed, in both ways of the package."""
    begun = client.responses.create(model="agent", input="hello", background=True, stream=True)
    events = []
    for event in begun:
        events.append(event)
        if event.type == "response.output_item.added":
            break
    begun.close()
    response_id, last = events[0].response.id, events[-1].sequence_number
    rest = list(client.responses.retrieve(response_id, stream=True, starting_after=last))
    numbers = [event.sequence_number for event in events + rest]
    with client.responses.stream(response_id=response_id, starting_after=last) as stream:
        same = [event.sequence_number for event in stream]
        final = stream.get_final_response()
    return {
        "numbered": numbers == list(range(len(numbers))),
        "last": rest[-1].type,
        "same": same == [event.sequence_number for event in rest],
        "text": final.output_text,
    }


def polls(client):
    response = client.responses.create(model="agent", input="hello", background=True)
    initial_status = response.status
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    slow = client.responses.create(model="agent", input="slowly", background=True)
    cancelled = client.responses.cancel(slow.id)
    return {
        "begun": initial_status,
        "text": response.output_text,
        "cancelled": [cancelled.status, client.responses.retrieve(slow.id).status],
    }


def reads_files(client):
    file = client.files.create(file=("table.csv", b"x,y\n1,2\n"), purpose="user_data")
    part = {"type": "input_file", "file_id": file.id}
    text = {"type": "input_text", "text": "make a file"}
    response = client.responses.create(
        model="agent", input=[{"role": "user", "content": [text, part]}]
    )
    [cited] = response.output[-1].content[-1].annotations
    made = client.files.content(cited.file_id).read()
    same = client.containers.files.content.retrieve(cited.file_id, container_id=cited.container_id)
    listed = [listed.id for listed in client.files.list(purpose="user_data")]
    content = client.files.content(file.id).read().decode()
    client.files.delete(file.id)
    return {
        "text": response.output_text,
        "citation": cited.type,
        "made": json.loads(made),
        "same": same.read() == made,
        "listed": listed == [file.id],
        "content": content,
        "deleted": missing(lambda: client.files.retrieve(file.id)),
    }


def uploads(client):
    """A file in parts, and every state of an upload."""
    content = bytes(range(256)) * 40
    done = client.uploads.upload_file_chunked(
        file=content,
        filename="big.bin",
        bytes=len(content),
        mime_type="application/octet-stream",
        purpose="user_data",
        part_size=4096,
        md5=hashlib.md5(content).hexdigest(),
    )
    other = client.uploads.create(
        bytes=3, filename="a.txt", mime_type="text/plain", purpose="user_data",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    part = client.uploads.parts.create(upload_id=other.id, data=b"abc")
    try:
        client.uploads.complete(upload_id=other.id, part_ids=[part.id], md5="0" * 32)
        digest = "accepted"
    except openai.BadRequestError as error:
        digest = error.param
    same = client.files.content(done.file.id).read() == content
    client.files.delete(done.file.id)
    return {
        "status": done.status,
        "file": [done.file.filename, done.file.bytes],
        "same": same,
        "other": [other.status, part.object, part.upload_id == other.id],
        "digest": digest,
        "cancelled": client.uploads.cancel(other.id).status,
    }


def converses(client):
    started = {"type": "message", "role": "user", "content": "before"}
    conversation = client.conversations.create(metadata={"topic": "demo"}, items=[started])
    texts = [
        client.responses.create(model="agent", input=text, conversation=conversation.id).output_text
        for text in ("hello", "and?")
    ]
    items = list(client.conversations.items.list(conversation.id, order="asc"))
    one = client.conversations.items.retrieve(items[-1].id, conversation_id=conversation.id)
    client.conversations.items.delete(items[-1].id, conversation_id=conversation.id)
    left = [item.id for item in client.conversations.items.list(conversation.id, order="asc")]
    gone = missing(lambda: client.conversations.items.retrieve(items[-1].id, conversation_id=conversation.id))
    found = client.conversations.retrieve(conversation.id)
    client.conversations.delete(conversation.id)
    return {
        "texts": texts,
        "items": [f"{item.role}: {item.content[0].text}" for item in items],
        "item": [one.content[0].text, left == [item.id for item in items[:-1]], gone],
        "metadata": found.metadata,
        "deleted": missing(lambda: client.conversations.retrieve(conversation.id)),
    }


def counts(client):
    """Estimates of the tokens of requests, which are not run."""
    count = lambda **members: client.responses.input_tokens.count(model="agent", **members)
    short = count(input="hello")
    long = count(input="hello " * 400)
    first = client.responses.create(model="agent", input="hello " * 400)
    following = count(input="and?", previous_response_id=first.id)
    with_tool = count(input="hello", tools=[TOOL])
    return {
        "object": short.object,
        "grows": long.input_tokens - short.input_tokens,
        "continues": following.input_tokens > long.input_tokens,
        "counts_tools": with_tool.input_tokens > short.input_tokens + 10,
        "unknown": missing(lambda: client.responses.input_tokens.count(model="nobody", input="x")),
    }


def calls_mcp(client):
    """Calls of tools of an MCP server, two in one round, and a conversation that is sent back as items."""
    with client.responses.stream(model="bank", input="my balance") as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = [event.type for event in events if ".mcp_" in event.type]
    done = {event.output_index: event.item for event in events if event.type == "response.output_item.done"}
    lists = [item for item in final.output if item.type == "mcp_list_tools"]
    calls = [item for item in final.output if item.type == "mcp_call"]
    following = client.responses.create(model="bank", input="and?", previous_response_id=final.id)
    items = [{"role": "user", "content": "my balance"}, *[item.to_dict() for item in final.output]]
    items.append({"role": "user", "content": "and?"})
    sent_back = client.responses.create(model="bank", input=items, store=False)
    return {
        "kinds": sorted(set(kinds)),
        "items": [item.type for item in final.output],
        "places": [done[number].id for number in sorted(done)] == [item.id for item in final.output],
        "tools": [tool.name for tool in lists[0].tools if tool.input_schema["type"] == "object"],
        "gone": [lists[1].server_label, bool(lists[1].error) and not lists[1].tools],
        "calls": [
            [
                call.server_label,
                call.name,
                json.loads(call.arguments),
                call.output,
                call.error and "nothing is left" in call.error,
                call.status,
            ]
            for call in calls
        ],
        "text": final.output_text,
        "same": [item.id for item in client.responses.retrieve(final.id).output] == [item.id for item in final.output],
        "next": [item.type for item in following.output],
        "sent_back": sent_back.output_text,
    }


def main():
    (url,) = sys.argv[1:]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    parts = [creates, streams, parses, loops, resumes, polls, reads_files, uploads, converses, counts, calls_mcp]
    print(json.dumps({part.__name__: part(client) for part in parts}))


main()
