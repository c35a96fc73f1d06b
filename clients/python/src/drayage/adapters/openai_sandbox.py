"""A sandbox client for sandbox agents of the OpenAI Agents SDK:
`RunConfig(sandbox=SandboxRunConfig(client=DrayageSandboxClient(dray), options=DrayageSandboxClientOptions(sandbox="docker:web")))`.

The sandbox exists already. A session of the SDK gets a separate directory in it, which `delete` removes. With a root in the
manifest, the session works there, and nothing is removed. The operator has to allow programs (docs/sandbox-exec.md).
"""

from __future__ import annotations

import io
import shlex
import tarfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Literal

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import BaseSandboxSession, SandboxSession, SandboxSessionState
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tarfile

from drayage import methods, v1
from drayage.adapters._files import MOVE_SCRIPT, move_error, staged_name
from drayage.aio import AsyncDray, AsyncSandbox
from drayage.faults import DrayageError

_DEFAULT_ROOT = str(Manifest.model_fields["root"].default)
_COMMAND_SECONDS = 3600
"""Time of the request for a command without a timeout: the operator's limit ends the command earlier."""
_TRANSFER_SECONDS = 60
"""Time of a request in addition to the time of its program, for output that comes through the store."""


class DrayageSandboxClientOptions(BaseSandboxClientOptions):
    """The sandbox, by its address (`docker:web`) or by the session that it is bound to."""

    type: Literal["drayage"] = "drayage"  # pyright: ignore[reportIncompatibleVariableOverride]
    sandbox: str = ""
    session: str = ""


class DrayageSandboxSessionState(SandboxSessionState):
    """Identifies the sandbox and the directory when a session is resumed."""

    type: Literal["drayage"] = "drayage"  # pyright: ignore[reportIncompatibleVariableOverride]
    sandbox: str
    session: str
    is_root_owned: bool
    """Whether the directory was created for this session, so that `delete` removes it."""


class DrayageSandboxSession(BaseSandboxSession):
    """A directory of a sandbox of Drayage."""

    state: DrayageSandboxSessionState

    def __init__(self, dray: AsyncDray, state: DrayageSandboxSessionState) -> None:
        self.state = state  # pyright: ignore[reportIncompatibleVariableOverride]
        self._dray = dray

    def sandbox(self, timeout: float | None = None) -> AsyncSandbox:
        """The sandbox, for requests that take at most `timeout` seconds."""
        return _find_sandbox(self._dray, self.state.sandbox, self.state.session, timeout)

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    async def _prepare_backend_workspace(self) -> None:
        await self._run(["mkdir", "-p", "--", self.state.manifest.root], directory="")

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        return await self._run([str(word) for word in command], directory=self.state.manifest.root, timeout=timeout)

    async def _run(self, argv: list[str], *, directory: str, timeout: float | None = None) -> ExecResult:
        environment = await self.state.manifest.environment.resolve()
        sandbox = self.sandbox((timeout or _COMMAND_SECONDS) + _TRANSFER_SECONDS)
        try:
            result = await sandbox.exec(argv, directory=directory, environment=environment, timeout=timeout or 0)
        except DrayageError as error:
            if error.fault.detail == "program_not_found":
                return ExecResult(stdout=b"", stderr=error.fault.message.encode(), exit_code=127)
            raise ExecTransportError(
                command=argv, message=str(error), cause=error, retryable=error.fault.retryable
            ) from error
        if result.state == "timed_out":
            raise ExecTimeoutError(command=argv, timeout_s=timeout)
        return ExecResult(stdout=result.stdout, stderr=result.stderr, exit_code=result.exit_code)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Reads a file: with proof, or as a user of the sandbox through `cat`."""
        resolved = await (self._check_read_with_exec(path, user=user) if user else self._validate_path_access(path))
        try:
            return io.BytesIO(await self._dray.read_bytes(await self.sandbox().get(resolved.as_posix())))
        except DrayageError as error:
            if error.fault.detail == "not_found":
                raise WorkspaceReadNotFoundError(path=path, cause=error) from error
            raise WorkspaceArchiveReadError(path=path, context={"reason": str(error)}, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Writes a file, and the directories above it."""
        target = await self._validate_path_access(path, for_write=True)
        content = coerce_write_payload(path=path, data=data).stream.read()
        async with self._staged(content, path) as staged:
            moved = await self.exec("sh", "-c", MOVE_SCRIPT, "sh", staged, target.as_posix(), shell=False, user=user)
        if not moved.ok():
            raise WorkspaceArchiveWriteError(path=path, context={"reason": move_error(moved.stdout, moved.stderr)})

    async def _stage(self, content: bytes, path: Path) -> str:
        """Puts bytes into the sandbox under a unique name."""
        try:
            return (await self.sandbox().put(content, name=staged_name())).path
        except DrayageError as error:
            raise WorkspaceArchiveWriteError(path=path, context={"reason": str(error)}, cause=error) from error

    @asynccontextmanager
    async def _staged(self, content: bytes, path: Path) -> AsyncIterator[str]:
        """A file of `_stage` that a command in the block removes; after an error or a cancellation it is removed here."""
        staged = await self._stage(content, path)
        try:
            yield staged
        except BaseException:
            with suppress(DrayageError):
                await self.sandbox().remove(staged)
            raise

    async def running(self) -> bool:
        """Whether the sandbox can be reached."""
        ref = v1.SandboxRef(address=self.state.sandbox) if self.state.sandbox else v1.SandboxRef(session=self.state.session)
        try:
            await self._dray.call(methods.SANDBOXES_PROBE, v1.ProbeSandboxRequest(sandbox=ref))
        except DrayageError:
            return False
        return True

    async def persist_workspace(self) -> io.IOBase:
        """The directory as a tar archive."""
        root = self._workspace_root_path()
        excluded = shlex.split(" ".join(shell_tar_exclude_args(self._persist_workspace_skip_relpaths())))
        archive = await self._stage(b"", root)
        try:
            packed = await self.exec("tar", "-cf", archive, *excluded, "-C", str(root), ".", shell=False)
            if not packed.ok():
                reason = packed.stderr.decode(errors="replace")
                raise WorkspaceArchiveReadError(path=root, context={"reason": reason})
            return io.BytesIO(await self._dray.read_bytes(await self.sandbox().get(archive)))
        except DrayageError as error:
            raise WorkspaceArchiveReadError(path=root, context={"reason": str(error)}, cause=error) from error
        finally:
            await self.exec("rm", "-f", "--", archive, shell=False)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpacks a tar archive into the directory."""
        root = self._workspace_root_path()
        content = coerce_write_payload(path=root, data=data).stream.read()
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as members:
                validate_tarfile(members, allow_external_symlink_targets=False)
        except (UnsafeTarMemberError, tarfile.TarError, OSError) as error:
            raise WorkspaceArchiveWriteError(path=root, context={"reason": str(error)}, cause=error) from error
        line = 'tar -xf "$1" -C "$2"; code=$?; rm -f -- "$1"; exit "$code"'
        async with self._staged(content, root) as archive:
            unpacked = await self.exec("sh", "-c", line, "sh", archive, str(root), shell=False)
        if not unpacked.ok():
            reason = unpacked.stderr.decode(errors="replace")
            raise WorkspaceArchiveWriteError(path=root, context={"reason": reason})


class DrayageSandboxClient(BaseSandboxClient[DrayageSandboxClientOptions]):
    """Creates sessions of the SDK in sandboxes of Drayage."""

    backend_id = "drayage"

    def __init__(self, dray: AsyncDray) -> None:
        self._dray = dray

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: DrayageSandboxClientOptions,
    ) -> SandboxSession:
        """Creates a session. Its directory is created when it starts."""
        if bool(options.sandbox) == bool(options.session):
            raise ValueError("name either a sandbox, such as `docker:web`, or a session")
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        session_id = uuid.uuid4()
        is_root_owned = manifest.root == _DEFAULT_ROOT
        if is_root_owned:
            result = await _find_sandbox(self._dray, options.sandbox, options.session).exec(["pwd"])
            root = PurePosixPath(result.stdout.decode().rstrip("\n")) / f"agents-{session_id.hex}"
            manifest = manifest.model_copy(update={"root": str(root)}, deep=True)
        state = DrayageSandboxSessionState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            sandbox=options.sandbox,
            session=options.session,
            is_root_owned=is_root_owned,
        )
        return self._wrap_session(DrayageSandboxSession(self._dray, state))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Removes the directory of the session if it was created for the session."""
        inner = session._inner
        if not isinstance(inner, DrayageSandboxSession):
            raise TypeError("this session was not created by DrayageSandboxClient")
        if inner.state.is_root_owned:
            await inner.sandbox().exec(["rm", "-rf", "--", inner.state.manifest.root])
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Continues in the directory of an earlier session. Missing content is restored from its snapshot."""
        if not isinstance(state, DrayageSandboxSessionState):
            raise TypeError("this state was not created by DrayageSandboxClient")
        state.assert_path_grants_rebound()
        session = DrayageSandboxSession(self._dray, state)
        session._set_start_state_preserved(True)
        return self._wrap_session(session)

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Reads a serialized state."""
        return self._deserialize_session_state_payload(payload, DrayageSandboxSessionState)


def _find_sandbox(dray: AsyncDray, address: str, session: str, timeout: float | None = None) -> AsyncSandbox:
    if timeout is not None:
        dray = dray.with_options(timeout=timeout)
    return dray.sandbox(address) if address else dray.session_sandbox(session)
