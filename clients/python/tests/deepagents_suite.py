"""The backend for deepagents: LangChain's own suite, and tests of what the suite does not cover. Run with pytest.

DRAYAGE_SCENARIO is as for end_to_end.py, with python: a directory of the sandbox that has `python` and `python3`; sandbox:
its address; and root: a directory in it that may be written. The tests below the suite need the sandbox `local:`.
"""

import json
import os
import re
import uuid
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from drayage import CallOptions, DeniedError, Dray, RetryPolicy, Tls, UnavailableError
from drayage.adapters.deepagents import DrayageSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests

SCENARIO = json.loads(os.environ["DRAYAGE_SCENARIO"])
BOX = Path(SCENARIO["box"])
ENVIRONMENT = {"PATH": f"{SCENARIO['python']}:/usr/bin:/bin"}


def connect(token: str = SCENARIO["token"], target: str = SCENARIO["target"]) -> Dray:
    tls = Tls(ca_certificate=SCENARIO["ca"], server_name="localhost")
    return Dray(target, token=token, tls=tls, options=CallOptions(retry=RetryPolicy(max_attempts=2)))


def backend(dray: Dray) -> DrayageSandbox:
    return DrayageSandbox(dray, SCENARIO["sandbox"], environment=ENVIRONMENT)


class TestStandardSuite(SandboxIntegrationTests):
    @property
    def sandbox_root_dir(self) -> str:
        return f"{SCENARIO['root']}/suite"

    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[SandboxBackendProtocol]:
        with connect() as dray:
            yield backend(dray)


@pytest.fixture
def box() -> Iterator[DrayageSandbox]:
    with connect() as dray:
        yield backend(dray)


@pytest.fixture
def directory() -> Path:
    """A directory of the sandbox for one test."""
    directory = BOX / uuid.uuid4().hex
    directory.mkdir()
    return directory


@pytest.mark.skipif(version("deepagents").startswith("0.6."), reason="deepagents 0.7 changed this")
def test_a_file_is_replaced_and_found_by_its_whole_path(box: DrayageSandbox, directory: Path) -> None:
    path = str(directory / "below" / "a.txt")
    for content in ["first", "second"]:
        assert box.write(path, content).error is None
    assert box.download_files([path])[0].content == b"second"
    assert [found["path"] for found in box.glob("*.txt", str(directory)).matches or []] == [path]


def test_an_upload_keeps_the_mode_of_a_file_and_follows_a_link(box: DrayageSandbox, directory: Path) -> None:
    path, link = directory / "run.sh", directory / ".run"
    path.write_text("old")
    path.chmod(0o750)
    link.symlink_to(path)
    assert box.upload_files([(str(link), b"new")])[0].error is None
    assert (path.read_bytes(), path.stat().st_mode & 0o777, link.is_symlink()) == (b"new", 0o750, True)
    assert box.upload_files([(str(directory), b"")])[0].error == "is_directory"
    assert box.upload_files([(f"{path}/below", b"")])[0].error == "invalid_path"
    assert list((BOX / "uploads").glob("staged-*")) == []


def test_a_command_may_be_longer_than_the_limit_of_arguments(box: DrayageSandbox) -> None:
    ran = box.execute(f"printf %s {'x' * 100_000} | wc -c; exit 3")
    assert (ran.output.strip(), ran.exit_code) == ("100000", 3)


def test_a_long_command_that_is_ended_and_an_upload_that_fails_leave_no_file(box: DrayageSandbox) -> None:
    assert box.execute(f": {'x' * 100_000}; sleep 60", timeout=1).exit_code == 124
    assert box.upload_files([(str(BOX / "half-\ud800"), b"")])[0].error == "invalid_path"
    assert list((BOX / "uploads").glob("staged-*")) == []


def test_a_slow_command_is_ended_with_its_output(box: DrayageSandbox) -> None:
    ran = box.execute("echo begun; sleep 60", timeout=1)
    assert ran.exit_code == 124
    assert re.match(r"begun\n\nThe command was ended after \d+ s\.", ran.output)


def test_failures_contain_advice_and_are_not_empty_results() -> None:
    for token, advice in [
        (SCENARIO["narrow_token"], "Ask the operator to add the method to the scopes of the identity."),
        (SCENARIO["other_token"], "Ask an operator to allow it in `sandbox-transfer.commands.allow`."),
    ]:
        with connect(token) as dray:
            for run in [lambda box: box.execute("true"), lambda box: box.ls("/")]:
                with pytest.raises(DeniedError, match=advice):
                    run(backend(dray))
            assert backend(dray).upload_files([(str(BOX / "x"), b"")])[0].error
            assert backend(dray).download_files([str(BOX / "x")])[0].error
    with connect(target="127.0.0.1:9") as dray, pytest.raises(UnavailableError, match="`dray up --grpc ADDRESS`"):
        backend(dray).execute("true")
    with connect() as dray, pytest.raises(ValueError, match="either"):
        DrayageSandbox(dray)
