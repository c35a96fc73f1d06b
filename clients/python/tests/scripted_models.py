"""Models that make one call and then answer, for the examples of docs/agent-frameworks.md."""

import importlib
import json
import sys


def deepagents():
    from langchain_core.language_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    class ScriptedModel(GenericFakeChatModel):
        def bind_tools(self, tools, **settings):
            return self

    call = {"name": "execute", "args": {"command": "seq 3 | paste -sd,"}, "id": "call-1"}
    return ScriptedModel(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("done by deepagents")]))


def openai(name, arguments):
    from agents import ModelResponse, Usage, set_tracing_disabled
    from agents.models.interface import Model
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)

    class ScriptedModel(Model):
        async def get_response(self, system_instructions, input, *settings, **keywords):
            items = [] if isinstance(input, str) else input
            results = [item for item in items if item.get("type") == "function_call_output"]
            if not results:
                call = ResponseFunctionToolCall(
                    type="function_call", name=name, arguments=json.dumps(arguments), call_id="call-1"
                )
                return ModelResponse(output=[call], usage=Usage(), response_id=None)
            text = ResponseOutputText(type="output_text", text=f"done: {results[0]['output']}", annotations=[])
            message = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
            return ModelResponse(output=[message], usage=Usage(), response_id=None)

        def stream_response(self, *arguments, **keywords):
            raise AssertionError("no example streams")

    return ScriptedModel()


def pydantic_ai():
    from pydantic_ai.models.test import TestModel

    return TestModel(call_tools=["list"])


MODELS = {
    "drayage.adapters.deepagents": deepagents,
    "drayage.adapters.openai_agents": lambda: openai("exec", {"argv": ["echo", "from the tools"]}),
    "drayage.adapters.openai_sandbox": lambda: openai("exec_command", {"cmd": "echo from the sandbox agent"}),
    "drayage.adapters.pydantic_ai": pydantic_ai,
}


def main():
    """Runs the example on standard input with a `model` for the adapter that it imports."""
    example = sys.stdin.read()
    adapter = next(name for name in MODELS if name in example)
    importlib.import_module(adapter)
    exec(compile(example, adapter, "exec"), {"__name__": "__main__", "model": MODELS[adapter]()})


if __name__ == "__main__":
    main()
