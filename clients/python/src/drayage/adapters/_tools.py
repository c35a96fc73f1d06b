"""The tools that every adapter offers: their names, their arguments, and the results that a model gets.

`tools.json` contains names, schemas and texts; the TypeScript client is generated from the same file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from drayage.adapters._deliveries import FileSender, printable
from drayage.aio import AsyncDray, AsyncSandbox
from drayage.faults import DrayageError
from drayage.models import CommandResult, PlacedFile

_DEFINITIONS: dict[str, Any] = json.loads(files("drayage.adapters").joinpath("tools.json").read_text(encoding="utf-8"))
_TEXTS: dict[str, str] = _DEFINITIONS["texts"]
_LIMITS: dict[str, int] = _DEFINITIONS["limits"]
_TRANSFER_SECONDS = 30
"""Time of a request in addition to the time of its program."""

_BOUNDS = {
    "integer": ("minimum", "maximum"),
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
}

DEFAULT_TOOLS = ("read", "list", "get", "put", "fetch", "send_file")
"""The default tools of an adapter: all but `exec`, which the operator has to allow for the sandbox."""


@dataclass(frozen=True)
class ToolDefinition:
    """The description of a tool for a model."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments."""


class Toolkit:
    """The tools for one sandbox, by its address (`docker:web`), or for a session with its sandbox and its chat.

    A tool grants no rights: the credentials of the client and the policies of the operator decide. Failures are texts
    for the model that name a remedy.
    """

    def __init__(
        self, dray: AsyncDray, *, sandbox: str = "", session: str = "", tools: Collection[str] | None = None
    ) -> None:
        if not sandbox and not session:
            raise ValueError("name a sandbox, such as `docker:web`, or a session")
        selected = DEFAULT_TOOLS if tools is None else tools
        known = {tool["name"] for tool in _DEFINITIONS["tools"]}
        if unknown := set(selected) - known:
            raise ValueError(f"there are no tools {sorted(unknown)}; there are {sorted(known)}")
        if tools is not None and "send_file" in tools and not session:
            raise ValueError("`send_file` needs a session, whose chat gets the files")
        self._dray = dray
        self._address = sandbox
        self._session = session
        self._sender = FileSender(dray, session, _TEXTS)
        self.definitions = [
            ToolDefinition(tool["name"], tool["description"], tool["parameters"])
            for tool in _DEFINITIONS["tools"]
            if tool["name"] in selected and (session or tool["name"] != "send_file")
        ]

    async def call(self, name: str, arguments: Mapping[str, Any] | str, call_id: str = "") -> str:
        """Runs a tool and returns the text for the model. `call_id` is the id of the model's call: files of a call that is
        repeated, after a crash of the caller, are not sent again."""
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except ValueError:
                return _TEXTS["invalid_json"]
        if not isinstance(arguments, Mapping):
            return _TEXTS["invalid_json"]
        definition = next(tool for tool in self.definitions if tool.name == name)
        if problem := _argument_problem(definition.parameters, arguments):
            return problem
        try:
            if name == "send_file":
                return await self._sender.send(call_id, arguments["paths"], arguments.get("message", ""))
            run = getattr(self, f"_{name}")
            text: str = await run(**arguments)
            return text
        except DrayageError as error:
            fault = error.fault
            return _TEXTS["failed"].format(message=fault.message, advice=fault.advice).strip()

    def _sandbox(self, dray: AsyncDray | None = None) -> AsyncSandbox:
        dray = dray or self._dray
        return dray.sandbox(self._address) if self._address else dray.session_sandbox(self._session)

    async def _read(self, source: str, range: str = "", find: str = "") -> str:
        if source.lower().startswith(("http://", "https://")):
            return (await self._dray.read(source, range=range, find=find)).text
        return (await self._sandbox().read(source, range=range, find=find)).text

    async def _list(self, path: str = ".") -> str:
        listing = await self._sandbox().ls(path, limit=_LIMITS["list_entries"])
        lines = [f"{entry.kind} {entry.size} {printable(entry.path)}" for entry in listing.entries]
        if listing.truncated:
            lines.append(_TEXTS["more_entries"])
        return "\n".join(lines) or _TEXTS["empty_directory"]

    async def _get(self, path: str) -> str:
        file = await self._sandbox().get(path, max_bytes=_LIMITS["get_bytes"])
        content = await self._dray.read_bytes(file)
        try:
            return _shortened(content.decode())
        except UnicodeDecodeError:
            return _TEXTS["not_text"].format(size=file.size, sha256=file.sha256)

    async def _put(self, name: str, content: str, directory: str = "") -> str:
        return _placed_text(await self._sandbox().put(content.encode(), name=name, directory=directory))

    async def _fetch(self, url: str, directory: str = "") -> str:
        fetched = await self._dray.fetch(url)
        return _placed_text(await self._sandbox().put(fetched, name=fetched.name or "download", directory=directory))

    async def _exec(self, argv: list[str], directory: str = "", stdin: str = "", timeout_seconds: int = 0) -> str:
        seconds = timeout_seconds or _LIMITS["exec_seconds"]
        # The deadline of the request would end the program before its time.
        sandbox = self._sandbox(self._dray.with_options(timeout=seconds + _TRANSFER_SECONDS))
        return _command_text(await sandbox.exec(argv, directory=directory, stdin=stdin.encode(), timeout=seconds))


def _argument_problem(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """The problems of arguments, as a text for the model; empty without any. Frameworks do not check what a model wrote."""
    properties = schema["properties"]
    problems = {name: _TEXTS["missing"] for name in schema.get("required", ()) if name not in arguments}
    for name, value in arguments.items():
        if name not in properties:
            problems[name] = _TEXTS["unknown"]
        elif problem := _value_problem(properties[name], value):
            problems[name] = problem
    return "\n".join(_TEXTS["invalid"].format(parameter=name, problem=problem) for name, problem in problems.items())


def _value_problem(schema: Mapping[str, Any], value: object) -> str:
    kind = schema["type"]
    if kind == "integer":
        if not isinstance(value, int) or isinstance(value, bool):
            return _TEXTS["wrong_type"].format(type="an integer")
        size = value
    elif kind == "string":
        if not _is_text(value):
            return _TEXTS["wrong_type"].format(type="a string")
        size = len(str(value))
    else:
        if not isinstance(value, list) or not all(map(_is_text, value)):
            return _TEXTS["wrong_type"].format(type="a list of strings")
        size = len(value)
    least, most = _BOUNDS[kind]
    return "" if schema.get(least, size) <= size <= schema.get(most, size) else _TEXTS["out_of_range"]


def _is_text(value: object) -> bool:
    """Whether a value is a string of whole characters: JSON can hold halves of a surrogate pair."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _placed_text(file: PlacedFile) -> str:
    return _TEXTS["placed"].format(path=printable(file.path), size=file.size, sha256=file.sha256)


def _command_text(result: CommandResult) -> str:
    parts = [_TEXTS[result.state].format(code=result.exit_code, signal=result.signal, seconds=round(result.seconds))]
    for title, output in [("stdout", result.stdout), ("stderr", result.stderr)]:
        if output:
            parts += [_TEXTS[title], _shortened(output.decode(errors="replace"))]
    if result.truncated:
        parts.append(_TEXTS["output_dropped"])
    return "\n".join(parts)


def _shortened(text: str) -> str:
    """A text within the limit: its beginning and its end."""
    half = _LIMITS["text_characters"] // 2
    left_out = len(text) - 2 * half
    return text if left_out <= 0 else text[:half] + _TEXTS["cut"].format(count=left_out) + text[-half:]
