"""Answers what a tool of the agent asks its user, with OpenAI's own client, and prints what it saw as JSON.

    python question_client.py URL
"""

import json
import sys

import openai

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "request_input",
            "description": "What a tool of the agent asks the user.",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
            "strict": True,
        },
    }
]
ANSWERS = {
    "bank_pay": {"action": "accept", "content": {"account": "first"}},
    "bank_sign": {"action": "decline"},
}


def ask(client, messages, **more):
    return client.chat.completions.create(model="agent", messages=messages, tools=TOOLS, **more)


def replies(message, answers):
    """The message with the questions, and a result for each."""
    results = []
    for call in message.tool_calls:
        tool = json.loads(call.function.arguments)["tool"]
        content = json.dumps(answers[tool])
        results.append({"role": "tool", "tool_call_id": call.id, "content": content})
    return [message.model_dump(include={"role", "content", "tool_calls"}), *results]


def answers(client):
    messages = [{"role": "user", "content": "both"}]
    choice = ask(client, messages).choices[0]
    shown = [json.loads(call.function.arguments) for call in choice.message.tool_calls]
    messages += replies(choice.message, ANSWERS)
    done = ask(client, messages).choices[0]
    try:
        ask(client, messages)
        again = "accepted"
    except openai.BadRequestError as error:
        again = error.code
    return {
        "names": [call.function.name for call in choice.message.tool_calls],
        "finish": choice.finish_reason,
        "asks": [[one["source"], one["tool"], one["questions"]["q"]["mode"]] for one in shown],
        "text": done.message.content,
        "again": again,
    }


def streams(client):
    """The same over streams, whose chunks the package puts together."""
    messages = [{"role": "user", "content": "both"}]
    with client.chat.completions.stream(model="agent", messages=messages, tools=TOOLS) as stream:
        message = stream.get_final_completion().choices[0].message
    messages += replies(message, ANSWERS)
    with client.chat.completions.stream(model="agent", messages=messages, tools=TOOLS) as stream:
        return stream.get_final_completion().choices[0].message.content


def refused(client):
    """An answer that the form does not allow; the right one counts afterwards."""
    messages = [{"role": "user", "content": "pay"}]
    message = ask(client, messages).choices[0].message
    wrong = replies(message, {"bank_pay": {"action": "accept", "content": {"iban": "x"}}})
    try:
        ask(client, [*messages, *wrong])
        code = "accepted"
    except openai.BadRequestError as error:
        code = error.code
    done = ask(client, [*messages, *replies(message, ANSWERS)])
    return [code, done.choices[0].message.content]


def responds(client):
    """In `/v1/responses` the question is text, and the next message answers it."""
    first = client.responses.create(model="agent", input="pay")
    done = client.responses.create(model="agent", input="first", previous_response_id=first.id)
    return ["> Which account?" in first.output_text, done.output_text]


def main():
    (url,) = sys.argv[1:]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    parts = [answers, streams, refused, responds]
    print(json.dumps({part.__name__: part(client) for part in parts}))


main()
