"""Reads the citations of answers of the orchestrator with OpenAI's own client, and prints a report as JSON.

    python citations_client.py URL
"""

import json
import sys

import openai


def cited_text(text, cited):
    """Title and URL of a citation, and the part of the text to which it belongs."""
    return [cited.title, cited.url, text[cited.start_index : cited.end_index]]


def annotations_of(part, file):
    """The annotations of a text: pages with the text to which they belong, and files with the text before them."""
    pages = [cited_text(part.text, annotation) for annotation in part.annotations if annotation.type == "url_citation"]
    files = [annotation for annotation in part.annotations if annotation.type == "file_citation"]
    return {
        "pages": pages,
        "files": [
            [cited.filename, cited.file_id == file.id, part.text[: cited.index].endswith(cited.filename)]
            for cited in files
        ],
    }


def responds(client):
    file = client.files.create(file=("table.csv", b"x,y\n1,2\n"), purpose="user_data")
    parts = [
        {"type": "input_text", "text": "look"},
        {"type": "input_file", "file_id": file.id},
    ]
    messages = [{"role": "user", "content": parts}]
    whole = client.responses.create(model="agent", input=messages)
    with client.responses.stream(model="agent", input=messages) as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = [event.type for event in events]
    added = [event for event in events if event.type == "response.output_text.annotation.added"]
    last = final.output[-1].content[-1]
    return {
        "whole": annotations_of(whole.output[-1].content[-1], file),
        "streamed": annotations_of(last, file),
        "added": [event.annotation["type"] for event in added],
        "numbered": [event.annotation_index for event in added],
        "before_done": kinds.index("response.output_text.annotation.added")
        < kinds.index("response.output_text.done"),
        "sent_back": client.responses.create(
            model="agent", input="again", previous_response_id=whole.id
        ).output_text,
    }


def chats(client):
    messages = [{"role": "user", "content": "look"}]
    whole = client.chat.completions.create(model="agent", messages=messages).choices[0].message
    with client.chat.completions.stream(model="agent", messages=messages) as stream:
        final = stream.get_final_completion().choices[0].message
    pages = [cited_text(whole.content, annotation.url_citation) for annotation in whole.annotations]
    answer = whole.model_dump(exclude_none=True)
    again = [*messages, answer, {"role": "user", "content": "again"}]
    next_message = client.chat.completions.create(model="agent", messages=again).choices[0].message
    return {
        "pages": pages,
        "kinds": [annotation.type for annotation in whole.annotations],
        "streamed": [annotation.url_citation.url for annotation in final.annotations],
        "next": next_message.content,
        "none": next_message.annotations,
    }


def main():
    client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0)
    print(json.dumps({"responds": responds(client), "chats": chats(client)}))


main()
