"""Runs agents of other packages, with their own tools, against the orchestrator, and prints a report as JSON.

    python agent_packages.py URL {openai,pydantic_ai,agents,langchain}
"""

import asyncio
import json
import sys

from pydantic import BaseModel

QUESTION = "What is it like in Paris?"
STRUCTURED = "Paris as JSON, please."


class City(BaseModel):
    name: str
    degrees: int


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def of_openai(url):
    import openai

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    chat = client.chat.completions
    tool = {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    messages = [{"role": "user", "content": QUESTION}]
    tool_reply = chat.create(model="agent", messages=messages, tools=[tool])
    message = tool_reply.choices[0].message
    messages.append(message)
    for call in message.tool_calls:
        arguments = json.loads(call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": weather(**arguments)})
    answer = chat.create(model="agent", messages=messages, tools=[tool])
    with chat.stream(model="agent", messages=messages[:1], tools=[tool]) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_completion().choices[0]
    parsed = chat.parse(
        model="agent", messages=[{"role": "user", "content": STRUCTURED}], response_format=City
    )
    return {
        "finish": tool_reply.choices[0].finish_reason,
        "answer": answer.choices[0].message.content,
        "counted": answer.usage.total_tokens > 0,
        "streamed": [streamed.finish_reason, streamed.message.tool_calls[0].function.name],
        "events": "tool_calls.function.arguments.done" in kinds,
        "parsed": parsed.choices[0].message.parsed.model_dump(),
    }


def of_pydantic_ai(url):
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("agent", provider=OpenAIProvider(base_url=url, api_key="none"))
    agent = Agent(model, system_prompt="Be brief.", instructions="Speak French.", tools=[weather])

    # All calls run in one event loop, because connections of the client belong to the loop that opened them.
    async def run():
        answer = await agent.run(QUESTION)
        native = await Agent(model, output_type=NativeOutput(City)).run(STRUCTURED)
        by_tool = await Agent(model, output_type=City).run("Paris by a tool.")
        async with agent.run_stream(QUESTION) as result:
            streamed = [text async for text in result.stream_text(delta=True)]
        return {
            "answer": answer.output,
            "streamed": "".join(streamed),
            "parsed": native.output.model_dump(),
            "by_tool": by_tool.output.model_dump(),
        }

    return asyncio.run(run())


def of_agents(url):
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    model = agents.OpenAIChatCompletionsModel(model="agent", openai_client=client)
    tool = agents.function_tool(weather)
    agent = agents.Agent(name="guide", instructions="Be brief.", model=model, tools=[tool])
    structured = agents.Agent(name="list", model=model, output_type=City)

    async def run():
        answer = await agents.Runner.run(agent, QUESTION)
        parsed = await agents.Runner.run(structured, STRUCTURED)
        streamed = agents.Runner.run_streamed(agent, QUESTION)
        async for _ in streamed.stream_events():
            pass
        return answer.final_output, parsed.final_output, streamed.final_output

    answer, parsed, streamed = asyncio.run(run())
    return {"answer": answer, "streamed": streamed, "parsed": parsed.model_dump()}


def of_langchain(url):
    from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="agent", base_url=url, api_key="none", max_retries=0)
    bound = model.bind_tools([weather])

    def loop(ask):
        messages = [SystemMessage("Be brief."), HumanMessage(QUESTION)]
        while True:
            message = ask(messages)
            messages.append(message)
            if not message.tool_calls:
                return message.content
            for call in message.tool_calls:
                messages.append(ToolMessage(weather(**call["args"]), tool_call_id=call["id"]))

    def streamed(messages):
        whole = None
        for chunk in bound.stream(messages):
            whole = chunk if whole is None else whole + chunk
        return whole

    parsed = model.with_structured_output(City, method="json_schema").invoke(STRUCTURED)
    return {
        "answer": loop(bound.invoke),
        "streamed": loop(streamed),
        "parsed": parsed.model_dump(),
    }


def main():
    url, package = sys.argv[1:]
    run = {
        "openai": of_openai,
        "pydantic_ai": of_pydantic_ai,
        "agents": of_agents,
        "langchain": of_langchain,
    }[package]
    print(json.dumps(run(f"{url}/v1")))


main()
