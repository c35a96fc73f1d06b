"""Answers questions about approval with OpenAI's own client, and prints a report as JSON.

    python approval_client.py URL
"""

import json
import sys

import openai


def answer(question, approve, **more):
    return {"type": "mcp_approval_response", "approval_request_id": question.id, "approve": approve, **more}


def question_of(response):
    """The only question of a response."""
    (question,) = [item for item in response.output if item.type == "mcp_approval_request"]
    return question


def approves(client):
    first = client.responses.create(model="agent", input="order")
    question = question_of(first)
    done = client.responses.create(
        model="agent", input=[answer(question, True)], previous_response_id=first.id
    )
    try:
        client.responses.create(model="agent", input=[answer(question, True)], previous_response_id=first.id)
        again = "accepted"
    except openai.BadRequestError as error:
        again = error.code
    return {
        "status": first.status,
        "kind": type(question).__name__,
        "question": [question.server_label, question.name, json.loads(question.arguments)],
        "text": done.output_text,
        "again": again,
    }


def refuses(client):
    first = client.responses.create(model="agent", input="order")
    refused = client.responses.create(
        model="agent", input=[answer(question_of(first), False, reason="too dear")], previous_response_id=first.id
    )
    return "The user says: too dear" in refused.output_text


def streams(client):
    with client.responses.stream(model="agent", input="order") as stream:
        kinds = [event.item.type for event in stream if event.type == "response.output_item.done"]
        first = stream.get_final_response()
    with client.responses.stream(
        model="agent", input=[answer(question_of(first), True)], previous_response_id=first.id
    ) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    return {"kinds": kinds, "text": text}


def keeps_no_state(client):
    first = client.responses.create(model="agent", input="order", store=False)
    question = question_of(first)
    history = [{"role": "user", "content": "order"}, *(item.to_dict() for item in first.output)]
    done = client.responses.create(model="agent", input=[*history, answer(question, True)], store=False)
    return done.output_text


def converses(client):
    conversation = client.conversations.create()
    first = client.responses.create(model="agent", input="order", conversation=conversation.id)
    done = client.responses.create(
        model="agent", input=[answer(question_of(first), True)], conversation=conversation.id
    )
    return done.output_text


def names_approvals(client):
    """The item of an approved call of an MCP server has the id of the item that asked, with and without a stream."""
    names = []
    for streams in (False, True):
        first = client.responses.create(model="bank", input="balance")
        question = question_of(first)
        more = {"model": "bank", "input": [answer(question, True)], "previous_response_id": first.id}
        if streams:
            with client.responses.stream(**more) as stream:
                added = [event.item for event in stream if event.type == "response.output_item.added"]
                done = stream.get_final_response()
        else:
            done = client.responses.create(**more)
            added = done.output
        calls = [item for item in [*added, *done.output] if item.type == "mcp_call"]
        names += [[type(call).__name__, call.approval_request_id == question.id] for call in calls]
    # A call that needs no approval has no id.
    free = client.responses.create(model="bank", input="lose")
    (call,) = [item for item in free.output if item.type == "mcp_call"]
    return {"approved": names, "free": call.approval_request_id}


def main():
    (url,) = sys.argv[1:]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    parts = [approves, refuses, streams, keeps_no_state, converses, names_approvals]
    print(json.dumps({part.__name__: part(client) for part in parts}))


main()
