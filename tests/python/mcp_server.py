"""A server of the official `mcp` package, by stdio, server-sent events or streamable HTTP.

    mcp_server.py stdio | sse | http | json

The HTTP kinds listen on a free loopback port and print it on the first line.
"""

import base64
import os
import socket
import sys

import uvicorn
from mcp.server import MCPServer
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

server = MCPServer("proof")
calls = 0


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


@server.tool(structured_output=False)
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


@server.tool()
def refuse(why: str) -> CallToolResult:
    """Fails."""
    return CallToolResult(content=[TextContent(type="text", text=why)], is_error=True)


@server.tool(structured_output=False)
def count() -> str:
    """Counts its calls."""
    global calls
    calls += 1
    return str(calls)


@server.tool(structured_output=False)
def die() -> str:
    """Ends the server in the middle of the call."""
    os._exit(3)


@server.tool()
def everything() -> CallToolResult:
    """Returns content of every kind."""
    return CallToolResult(
        content=[
            TextContent(type="text", text="one"),
            ImageContent(type="image", data=encoded(b"picture"), mime_type="image/png"),
            AudioContent(type="audio", data=encoded(b"sound"), mime_type="audio/wav"),
            EmbeddedResource(
                type="resource",
                resource=BlobResourceContents(uri="x://r", mime_type="application/pdf", blob=encoded(b"paper")),
            ),
            ResourceLink(type="resource_link", uri="https://example.com/a", name="a link"),
            TextContent(type="text", text="two"),
        ]
    )


@server.tool()
def structured() -> CallToolResult:
    """Returns structured content alone."""
    return CallToolResult(content=[], structured_content={"b": 1, "a": [2]})


def listen(app) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="error")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    kind = sys.argv[1]
    if kind == "stdio":
        server.run("stdio")
    elif kind == "sse":
        listen(server.sse_app())
    else:
        listen(server.streamable_http_app(json_response=kind == "json"))
