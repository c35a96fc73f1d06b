"""The tool that sends files: what it remembers so that no file reaches a person twice, and no new version is held back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from drayage.aio import AsyncDray
from drayage.faults import DeadlineError, DrayageError
from drayage.models import DeliveryReport

MAX_UNCONFIRMED = 1000
"""Most deliveries without a known outcome that are remembered; the oldest ones are forgotten."""


class FileSender:
    """Sends files of a session's sandbox to its chat, and continues deliveries whose outcome is not known."""

    def __init__(self, dray: AsyncDray, session: str, texts: Mapping[str, str]) -> None:
        self._dray = dray
        self._session = session
        self._texts = texts
        self._unconfirmed: dict[tuple[str, ...], str] = {}

    async def send(self, call_id: str, paths: Sequence[str], message: str) -> str:
        """Sends the files and returns the text for the model. After a call that ended without an outcome, the next call for
        the same paths and message continues its delivery, and sends the files once more only if they have changed since."""
        content = (*paths, message)
        own_operation = self._operation_of(call_id, content)
        operation = self._unconfirmed.pop(content, own_operation)
        is_final = False
        try:
            # The same id is the same delivery, also when the request of a cancelled call arrives later.
            report, is_duplicate = await self._deliver(operation, paths, message)
            note = self._texts["sent_before"]
            lines: list[str] = []
            if operation != own_operation:
                note = self._texts["sent_earlier"]
                if await self._has_changed(report):
                    lines = [self._texts["earlier_outcome"], *_lines_of(report), self._texts["sent_now"]]
                    operation = own_operation
                    report, is_duplicate = await self._deliver(operation, paths, message)
            is_final = True
            if is_duplicate and not lines:
                lines = [note]
            return "\n".join([*lines, *_lines_of(report)])
        except DrayageError as error:
            is_final = not error.fault.retryable
            if isinstance(error, DeadlineError):
                return self._texts["in_progress"].format(delivery=operation)
            raise
        finally:
            # Runs for a cancelled call too, whose files may arrive nevertheless.
            if not is_final:
                self._remember(content, operation)

    async def _deliver(self, operation: str, paths: Sequence[str], message: str) -> tuple[DeliveryReport, bool]:
        dray = self._dray.with_options(operation_id=operation)
        delivery = await dray.send(self._session, paths=paths, message=message)
        return await delivery.outcome(), delivery.duplicate

    async def _has_changed(self, report: DeliveryReport) -> bool:
        """Whether the sandbox has other files now than those of the delivery."""
        sandbox = self._dray.session_sandbox(self._session)
        for file in report.files:
            sent_digest = file.message.sha256
            try:
                present = await sandbox.get(file.message.path)
            except DrayageError:
                # A directory, or a file that is gone. The text says how to send the path nevertheless.
                continue
            if present.claim.artifact.sha256 != sent_digest:
                return True
        return not report.files

    def _operation_of(self, call_id: str, content: tuple[str, ...]) -> str:
        if not call_id:
            return self._dray.options.operation()
        call = json.dumps([self._session, call_id, content]).encode()
        return f"call-{hashlib.sha256(call).hexdigest()[:48]}"

    def _remember(self, content: tuple[str, ...], operation: str) -> None:
        self._unconfirmed[content] = operation
        while len(self._unconfirmed) > MAX_UNCONFIRMED:
            del self._unconfirmed[next(iter(self._unconfirmed))]


def printable(path: str) -> str:
    """A path on one line, with escapes for characters that cannot be printed."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in path
    )


def _lines_of(report: DeliveryReport) -> list[str]:
    return [f"{printable(file.name)}: {' '.join(filter(None, [file.state, file.error]))}" for file in report.files]
