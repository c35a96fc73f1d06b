"""A sandbox backend for deepagents (LangChain): `create_deep_agent(backend=DrayageSandbox(dray, "docker:web"))`.

Programs run through `Sandboxes.Exec`, which the operator has to allow (docs/sandbox-exec.md). Files travel through the store
with proof. The listing, reading, searching and editing of deepagents need `python3` in the sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from drayage.adapters._files import MOVE_SCRIPT, move_error, staged_name
from drayage.client import Dray, Sandbox
from drayage.faults import DrayageError
from drayage.models import CommandResult

DEFAULT_COMMAND_TIMEOUT = 120
"""Seconds for a command without a timeout."""
MAX_ARGUMENT_BYTES = 48 * 1024
"""Most bytes of a command that travels as an argument; arguments and variables have 64 KiB."""
_TRANSFER_SECONDS = 60
"""Time of a request in addition to the time of its program, for output that comes through the store."""
_TIMEOUT_EXIT_CODE = 124
"""Exit code of a command that took too long, the same as that of `timeout` in coreutils."""

_FILE_ERRORS = {
    "not_found": "file_not_found",
    "is_directory": "is_directory",
    "permission_denied": "permission_denied",
    "invalid_name": "invalid_path",
    "not_directory": "invalid_path",
}


class DrayageSandbox(BaseSandbox):
    """One sandbox by its address, such as `docker:web`, or the sandbox of a session.

    Failures of the service raise `DrayageError`, whose text contains advice: no command ran, or its outcome is not known.
    A command that fails is a result.
    """

    def __init__(
        self,
        dray: Dray,
        sandbox: str = "",
        *,
        session: str = "",
        environment: Mapping[str, str] | None = None,
        timeout: int = DEFAULT_COMMAND_TIMEOUT,
    ) -> None:
        if bool(sandbox) == bool(session):
            raise ValueError("name either a sandbox, such as `docker:web`, or a session")
        self._dray = dray
        self._address = sandbox
        self._session = session
        self._environment = dict(environment or {})
        self._timeout = timeout

    @property
    def id(self) -> str:
        """The address of the sandbox, or `session:` and the session."""
        return self._address or f"session:{self._session}"

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a line of a shell, with both outputs in one. `timeout` in seconds; the operator's limit counts too."""
        if len(command.encode()) <= MAX_ARGUMENT_BYTES:
            argv = ["sh", "-c", 'exec sh -c "$1" 2>&1', "sh", command]
            return _response_of(self._command(argv, self._seconds(timeout), self._environment))
        argv = ["sh", "-c", 'exec 2>&1; (. "$1"); code=$?; rm -f -- "$1"; exit "$code"', "sh"]
        return _response_of(self._staged_command(command.encode(), argv, [], self._seconds(timeout), self._environment))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, and the directories above them. A path is absolute."""
        return [FileUploadResponse(path, error=self._upload(path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files within the directories that the operator allows."""
        return [self._download(path) for path in paths]

    def _sandbox(self, timeout: float | None = None) -> Sandbox:
        dray = self._dray if timeout is None else self._dray.with_options(timeout=timeout)
        return dray.sandbox(self._address) if self._address else dray.session_sandbox(self._session)

    def _command(self, argv: list[str], timeout: int, environment: Mapping[str, str]) -> CommandResult:
        return self._sandbox(timeout + _TRANSFER_SECONDS).exec(argv, timeout=timeout, environment=environment)

    def _seconds(self, timeout: int | None) -> int:
        return self._timeout if timeout is None or timeout <= 0 else timeout

    def _staged_command(
        self, content: bytes, argv: list[str], further: list[str], timeout: int, environment: Mapping[str, str]
    ) -> CommandResult:
        """Puts bytes into the sandbox under a unique name, and runs a command with that name, which removes the file."""
        staged = self._sandbox().put(content, name=staged_name()).path
        has_ended = False
        try:
            result = self._command([*argv, staged, *further], timeout, environment)
            has_ended = result.state == "exited"
            return result
        finally:
            if not has_ended:
                with suppress(DrayageError):
                    self._sandbox().remove(staged)

    def _upload(self, path: str, content: bytes) -> str | None:
        if not path.startswith("/") or path.endswith("/"):
            return "invalid_path"
        try:
            result = self._staged_command(content, ["sh", "-c", MOVE_SCRIPT, "sh"], [path], self._timeout, {})
        except UnicodeEncodeError:
            # A name in JSON can hold half of a surrogate pair.
            return "invalid_path"
        except DrayageError as error:
            return str(error)
        return None if result.exit_code == 0 else move_error(result.stdout, result.stderr)

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path, error="invalid_path")
        try:
            content = self._dray.read_bytes(self._sandbox().get(path))
        except DrayageError as error:
            return FileDownloadResponse(path, error=_FILE_ERRORS.get(error.fault.detail, str(error)))
        return FileDownloadResponse(path, content=content)


def _response_of(result: CommandResult) -> ExecuteResponse:
    output = result.stdout.decode(errors="replace")
    if result.state == "timed_out":
        output += f"\nThe command was ended after {result.seconds:.0f} s. Give it more time, or let it do less."
        return ExecuteResponse(output, _TIMEOUT_EXIT_CODE, result.truncated)
    return ExecuteResponse(output, result.exit_code, result.truncated)
