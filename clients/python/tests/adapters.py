"""The adapters with the packages of their frameworks and scripted models, against the real services.

DRAYAGE_SCENARIO is as for end_to_end.py.
"""

import asyncio
import io
import json
import os
import select
import unittest
from pathlib import Path

from agents import Agent, ModelResponse, RunConfig, Runner, Usage, set_tracing_disabled
from agents.models.interface import Model
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, ExecTransportError, WorkspaceArchiveWriteError, WorkspaceReadNotFoundError
from agents.sandbox.snapshot import LocalSnapshotSpec
from drayage import AsyncDray, CallOptions, RetryPolicy, Tls
from drayage.adapters._tools import DEFAULT_TOOLS, Toolkit
from drayage.adapters.openai_agents import drayage_tools
from drayage.adapters.openai_sandbox import DrayageSandboxClient, DrayageSandboxClientOptions
from drayage.adapters.pydantic_ai import drayage_toolset
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import models
from pydantic_ai.messages import ModelResponse as PydanticResponse
from pydantic_ai.messages import TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

SCENARIO = json.loads(os.environ["DRAYAGE_SCENARIO"])
BOX, INBOX = Path(SCENARIO["box"]), Path(SCENARIO["inbox"])
ADDRESS = f"local:{BOX}"
ALL_TOOLS = (*DEFAULT_TOOLS, "exec")

models.ALLOW_MODEL_REQUESTS = False
set_tracing_disabled(True)


def connect(token=SCENARIO["token"], **changes):
    tls = Tls(ca_certificate=SCENARIO["ca"], server_name="localhost")
    return AsyncDray(changes.pop("target", SCENARIO["target"]), token=token, tls=tls, options=CallOptions(timeout=60, **changes))


async def bind(dray, session):
    await dray.bind_session(session, sandbox=ADDRESS, chat=f"cli:{INBOX}")


class RehearsedModel(Model):
    """A model of the OpenAI Agents SDK that makes the given calls one after the other, and keeps their results."""

    def __init__(self, *calls):
        self.calls = list(calls)
        self.results = []

    async def get_response(self, system_instructions, input, *settings, **keywords):
        self.results = [item["output"] for item in input if item.get("type") == "function_call_output"]
        if len(self.results) < len(self.calls):
            name, arguments = self.calls[len(self.results)]
            call = ResponseFunctionToolCall(
                type="function_call", name=name, arguments=json.dumps(arguments), call_id=f"call-{len(self.results)}"
            )
            return ModelResponse(output=[call], usage=Usage(), response_id=None)
        text = ResponseOutputText(type="output_text", text="done", annotations=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *arguments, **keywords):
        raise AssertionError("no test streams")


class OpenAiAgentsTools(unittest.IsolatedAsyncioTestCase):
    async def test_an_agent_writes_reads_runs_and_sends_a_file(self):
        async with connect() as dray:
            await bind(dray, "openai")
            model = RehearsedModel(
                ("put", {"name": "sums.csv", "content": "a,b\n1,2\n"}),
                ("exec", {"argv": ["wc", "-l", "uploads/sums.csv"]}),
                ("read", {"source": "uploads/sums.csv"}),
                ("send_file", {"paths": ["uploads/sums.csv"], "message": "The sums."}),
                ("exec", {"argv": "ls"}),
            )
            agent = Agent("clerk", model=model, tools=drayage_tools(dray, session="openai", tools=ALL_TOOLS))
            result = await Runner.run(agent, "Add it up.")
        self.assertEqual(result.final_output, "done")
        put, ran, read, sent, invalid = model.results
        self.assertIn(f"{BOX}/uploads/sums.csv (8 bytes", put)
        self.assertTrue(ran.startswith("exit code 0\nstandard output:\n2 "), ran)
        self.assertIn("untrusted", read)
        self.assertEqual(sent, "sums.csv: copied")
        self.assertEqual((INBOX / "sums.csv").read_text(), "a,b\n1,2\n")
        self.assertIn("Parameter argv is invalid: it must be a list of strings.", invalid)


class PydanticAiToolset(unittest.IsolatedAsyncioTestCase):
    async def test_every_tool_can_be_called_with_arguments_of_its_schema(self):
        async with connect() as dray:
            await bind(dray, "pydantic-all")
            toolset = drayage_toolset(dray, session="pydantic-all", tools=ALL_TOOLS)
            result = await PydanticAgent(TestModel(), toolsets=[toolset]).run("Try everything.")
        returned = [
            part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)
        ]
        self.assertEqual(sorted(part.tool_name for part in returned), sorted(ALL_TOOLS))
        self.assertTrue(all(isinstance(part.content, str) and part.content for part in returned), returned)

    async def test_a_repeated_call_sends_no_file_again(self):
        (BOX / "once.txt").write_text("once")
        call = ToolCallPart("send_file", {"paths": ["once.txt"]}, tool_call_id="call-of-a-crash")

        async def model(messages, info):
            returned = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
            return PydanticResponse([TextPart(returned[0])] if returned else [call])

        async with connect() as dray:
            await bind(dray, "pydantic-once")
            agent = PydanticAgent(FunctionModel(model), toolsets=[drayage_toolset(dray, session="pydantic-once")])
            first = await agent.run("Send it.")
            again = await agent.run("Send it.")
            receipts = await dray.receipts(session="pydantic-once")
        self.assertEqual(first.output, "once.txt: copied")
        self.assertIn("nothing was sent again", again.output)
        self.assertEqual(len(receipts), 1)


    async def test_an_argument_that_the_tool_does_not_have_is_named_for_the_model(self):
        # The second name is that of a parameter of the adapter's own function.
        names = iter(["topic", "context"])

        async def model(messages, info):
            returned.extend(part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart))
            name = next(names, None)
            return PydanticResponse([ToolCallPart("list", {name: "x"}) if name else TextPart("done")])

        returned = []
        async with connect() as dray:
            toolset = drayage_toolset(dray, sandbox=ADDRESS)
            await PydanticAgent(FunctionModel(model), toolsets=[toolset]).run("Look around.")
        problem = "Parameter {} is invalid"
        self.assertEqual([text.split(":")[0] for text in returned], [problem.format("topic"), problem.format("context")])


class OpenAiSandbox(unittest.IsolatedAsyncioTestCase):
    async def test_a_sandbox_agent_works_in_a_separate_directory(self):
        async with connect() as dray:
            client = DrayageSandboxClient(dray)
            options = DrayageSandboxClientOptions(sandbox=ADDRESS)
            manifest = Manifest(entries={"notes.txt": File(content=b"from the manifest\n")})
            model = RehearsedModel(("exec_command", {"cmd": "cat notes.txt; pwd"}))
            agent = SandboxAgent("worker", model=model, default_manifest=manifest)
            config = RunConfig(sandbox=SandboxRunConfig(client=client, options=options))
            result = await Runner.run(agent, "Look around.", run_config=config)
        self.assertEqual(result.final_output, "done")
        self.assertIn("from the manifest", model.results[0])
        self.assertIn(f"{BOX}/agents-", model.results[0])
        self.assertEqual(list(BOX.glob("agents-*")), [])

    async def test_a_cancelled_write_leaves_no_file(self):
        async with connect() as dray:
            client = DrayageSandboxClient(dray)
            session = await client.create(options=DrayageSandboxClientOptions(sandbox=ADDRESS))
            async with session:
                pipe = Path(session.state.manifest.root) / "pipe"
                os.mkfifo(pipe)
                reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
                # More than a pipe holds, so the command waits for its reader.
                writing = asyncio.ensure_future(session.write(Path("pipe"), io.BytesIO(bytes(1 << 20))))
                await asyncio.to_thread(select.select, [reader], [], [])
                writing.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await writing
                os.close(reader)
                self.assertEqual(list(BOX.rglob("staged-*")), [])
            await client.delete(session)

    async def test_files_and_a_snapshot_survive_the_session(self):
        options = DrayageSandboxClientOptions(sandbox=ADDRESS)
        content = bytes(range(256)) * 1000
        async with connect() as dray:
            client = DrayageSandboxClient(dray)
            spec = LocalSnapshotSpec(base_path=BOX.parent / "snapshots")
            session = await client.create(snapshot=spec, options=options)
            async with session:
                await session.write(Path("deep/.hidden name.bin"), io.BytesIO(content))
                self.assertEqual((await session.read(Path("deep/.hidden name.bin"))).read(), content)
                with self.assertRaises(WorkspaceReadNotFoundError):
                    await session.read(Path("missing"))
                with self.assertRaises(WorkspaceArchiveWriteError):
                    await session.write(Path("deep"), io.BytesIO(b"on a directory"))
                with self.assertRaises(ExecTimeoutError):
                    await session.exec("sleep 60", timeout=1)
                self.assertEqual((await session.exec("no-such-program", shell=False)).exit_code, 127)
                self.assertTrue(await session.running())
            state = client.deserialize_session_state(client.serialize_session_state(session.state))
            await client.delete(session)
            self.assertEqual(list(BOX.glob("agents-*")), [])
            resumed = await client.resume(state)
            async with resumed:
                self.assertEqual((await resumed.read(Path("deep/.hidden name.bin"))).read(), content)
            await client.delete(resumed)


class Failures(unittest.IsolatedAsyncioTestCase):
    async def call(self, name, arguments, token=SCENARIO["token"], **changes):
        async with connect(token, **changes) as dray:
            return await Toolkit(dray, sandbox=ADDRESS, tools=[name for name in ALL_TOOLS if name != "send_file"]).call(name, arguments)

    async def test_a_missing_scope_is_reported_with_advice_for_the_operator(self):
        for name, arguments in [("exec", {"argv": ["true"]}), ("list", {})]:
            text = await self.call(name, arguments, SCENARIO["narrow_token"])
            self.assertIn("may not call `dray.v1.Sandboxes/", text)
            self.assertIn("Ask the operator to add the method to the scopes", text)

    async def test_a_refused_program_is_reported_with_the_setting_that_allows_it(self):
        async with connect(SCENARIO["other_token"]) as dray:
            text = await Toolkit(dray, sandbox=ADDRESS, tools=["exec"]).call("exec", {"argv": ["true"]})
            self.assertIn("sandbox-transfer.commands.allow", text)
            session = await DrayageSandboxClient(dray).create(
                manifest=Manifest(root=str(BOX)), options=DrayageSandboxClientOptions(sandbox=ADDRESS)
            )
            with self.assertRaisesRegex(ExecTransportError, "sandbox-transfer.commands.allow"):
                await session.exec("true")

    async def test_an_unknown_caller_gets_advice_about_its_token(self):
        text = await self.call("list", {}, "another-token")
        self.assertTrue(text.startswith("This failed: "), text)
        self.assertIn("token", text)

    async def test_an_unreachable_server_is_named_with_advice(self):
        text = await self.call("list", {}, target="127.0.0.1:9", retry=RetryPolicy(max_attempts=2))
        self.assertIn("127.0.0.1:9", text)
        self.assertIn("`dray up --grpc ADDRESS`", text)

    async def test_a_cancelled_call_ends_its_program(self):
        async with connect() as dray:
            tools = Toolkit(dray, sandbox=ADDRESS, tools=["exec"])
            started = BOX / "started"
            os.mkfifo(started)
            call = asyncio.ensure_future(
                tools.call("exec", {"argv": ["sh", "-c", 'echo $$ >"$0"; exec sleep 600', str(started)]})
            )
            process = os.pidfd_open(int(await asyncio.to_thread(started.read_text)))
            call.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await call
            # A descriptor of a process is readable when it has ended.
            ended, _, _ = await asyncio.to_thread(select.select, [process], [], [], 60)
            os.close(process)
            self.assertEqual(ended, [process])


if __name__ == "__main__":
    unittest.main()
