"""Uses `dray mcp` with the client of the official `mcp` package and prints a report as JSON.

    python mcp_client.py {legacy,2026-07-28} ROOT {read,write} COMMAND...
    python mcp_client.py {legacy,2026-07-28} ROOT http URL TOKEN
"""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request

import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client


def tool_report(result):
    """The result of a tool, with the types of its content instead of long data."""
    kinds = [block.type for block in result.content]
    texts = [block.text for block in result.content if block.type == "text"]
    return {
        "error": bool(result.is_error),
        "kinds": kinds,
        "text": "\n".join(texts),
        "structured": result.structured_content,
        "tokens": len(result.model_dump_json()) // 3,
    }


async def document_parts(client, path):
    """Reads a whole document: each result names the next call."""
    text, calls = "", 0
    arguments = {"path": path, "range": "bytes 0-"}
    while arguments:
        value = (await client.call_tool("read", arguments)).structured_content
        body = value["text"].split("--BEGIN ", 1)[1].split("\n", 1)[1].rsplit("\n--END ", 1)[0]
        text, calls = text + body, calls + 1
        arguments = value.get("next", {}).get("arguments")
    return {"text": text, "calls": calls}


async def read_tools(client, root):
    outside = ["../secret.txt", "/etc/passwd", "link", root + "-old/secret.txt", "file:///etc/passwd", "a\0b"]
    call = client.call_tool
    return {
        "version": client.protocol_version,
        "tools": [tool.name for tool in (await client.list_tools()).tools],
        "prompts": [prompt.name for prompt in (await client.list_prompts()).prompts],
        "templates": [t.uri_template for t in (await client.list_resource_templates()).resource_templates],
        "notes": tool_report(await call("read", {"path": "notes.txt"})),
        "pdf": tool_report(await call("read", {"path": "report.pdf"})),
        "big": tool_report(await call("read", {"path": "big.txt"})),
        "parts": await document_parts(client, "big.txt"),
        "picture": tool_report(await call("read", {"path": "dot.png"})),
        "binary": tool_report(await call("read", {"path": "data.bin"})),
        "outside": [tool_report(await call("read", {"path": path})) for path in outside],
        "fetch": tool_report(await call("fetch", {"url": "https://example.com/"})),
        "list": tool_report(await call("list", {})),
        "other": tool_report(await call("list", {"path": "dray://sandbox/another/x"})),
        "resolved": tool_report(await call("resolve_file_arguments", {"arguments": {"a": "plain"}})),
        "wrong": tool_report(await call("read", {"file": "notes.txt"})),
        "to": tool_report(await call("get", {"from": "notes.txt", "to": "copy.txt"})),
    }


async def write_tools(client, root):
    call = client.call_tool
    steps = []

    async def progress(step, total, message):
        steps.append(message)

    got = await call("get", {"from": "notes.txt", "to": "copy.txt"})
    handle = got.structured_content["handle"]
    put = await call("put", {"from": "notes.txt"}, progress_callback=progress)
    path = put.structured_content["path"]
    sandbox = path.replace("sandbox:", "dray://sandbox/mcp/")
    sent = await call("send_file", {"files": [path, "report.pdf"], "message": "here", "delivery_id": "d-1"})
    again = await call("send_file", {"files": [path, "report.pdf"], "message": "here", "delivery_id": "d-1"})
    resource = (await client.read_resource(handle)).contents[0]
    receipt = (await client.read_resource("dray://receipt/d-1")).contents[0]
    return {
        "tools": [tool.name for tool in (await client.list_tools()).tools],
        "got": tool_report(got),
        "again": tool_report(await call("get", {"from": "notes.txt", "to": "copy.txt"})),
        "put": tool_report(put),
        "steps": steps,
        "listed": tool_report(await call("list", {"path": os.path.dirname(path)})),
        "read": tool_report(await call("read", {"path": path})),
        "sent": tool_report(sent),
        "sent_again": tool_report(again),
        "receipts": tool_report(await call("receipts", {})),
        "resource": [resource.text, resource.mime_type],
        "receipt": json.loads(receipt.text)["success"],
        "sandbox": (await client.read_resource(sandbox)).contents[0].text,
        "prompt": (await client.get_prompt("send_result", {"path": path})).messages[0].content.text,
        "outside": tool_report(await call("get", {"from": "notes.txt", "to": "../escaped.txt"})),
        "unsent": tool_report(await call("send_file", {"files": ["../secret.txt"]})),
    }


def status(url, **headers):
    """The status of a request with these headers."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, sent)) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


async def over_http(url, token, mode, root):
    authorization = f"Bearer {token}"
    statuses = {
        "none": status(url),
        "wrong": status(url, Authorization="Bearer wrong-wrong-wrong-wrong"),
        "basic": status(url, Authorization=f"Basic {token}"),
        "host": status(url, Authorization=authorization, Host="evil.example"),
        "origin": status(url, Authorization=authorization, Origin="https://evil.example"),
        "null": status(url, Authorization=authorization, Origin="null"),
        "port": status(url, Authorization=authorization, Origin="http://127.0.0.1:1"),
        "own": status(url, Authorization=authorization, Origin=url.removesuffix("/mcp")),
    }
    http = httpx2.AsyncClient(headers={"Authorization": authorization})
    async with http, Client(streamable_http_client(url, http_client=http), mode=mode) as client:
        notes = tool_report(await client.call_tool("read", {"path": "notes.txt"}))
        return {"statuses": statuses, "version": client.protocol_version, "notes": notes}


async def main():
    mode, root, job, *rest = sys.argv[1:]
    if job == "http":
        return await over_http(*rest, mode, root)
    server = StdioServerParameters(command=rest[0], args=rest[1:], cwd=root, env=dict(os.environ))
    async with Client(stdio_client(server), mode=mode) as client:
        jobs = {"read": read_tools, "write": write_tools}
        return await jobs[job](client, root)


print(json.dumps(asyncio.run(main())))
