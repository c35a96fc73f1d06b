"""Runs agents of other packages, with their own tools, against the orchestrator, and prints a report as JSON.

    python agent_packages.py URL {openai,pydantic_ai,agents,langchain,langgraph,litellm,aidial}
"""

import asyncio
import json
import os
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


def of_langgraph(url):
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    report = {}
    for kind, use_responses_api in (("chat", False), ("responses", True)):
        model = ChatOpenAI(
            model="agent",
            base_url=url,
            api_key="none",
            max_retries=0,
            use_responses_api=use_responses_api,
        )
        agent = create_agent(model, [weather], system_prompt="Be brief.")
        question = {"messages": [("user", QUESTION)]}
        pieces = [
            message.text
            for message, metadata in agent.stream(question, stream_mode="messages")
            if metadata["langgraph_node"] == "model"
        ]
        report[kind] = {
            "answer": agent.invoke(question)["messages"][-1].text,
            "streamed": "".join(pieces),
        }
    return report


def of_litellm(url):
    # Prices would be downloaded otherwise.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    litellm.suppress_debug_info = True
    common = {"model": "openai/agent", "api_base": url, "api_key": "none", "num_retries": 0}
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    messages = [{"role": "user", "content": QUESTION}]
    message = litellm.completion(messages=messages, tools=tools, **common).choices[0].message
    messages.append(message)
    for call in message.tool_calls:
        content = weather(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    whole = litellm.completion(messages=messages, tools=tools, **common)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    stream = litellm.completion(messages=messages, tools=tools, **options, **common)
    streamed = litellm.stream_chunk_builder(list(stream))
    structured = [{"role": "user", "content": STRUCTURED}]
    parsed = litellm.completion(messages=structured, response_format=City, **common)
    return {
        "answer": whole.choices[0].message.content,
        "streamed": streamed.choices[0].message.content,
        "counted": streamed.usage.total_tokens > 0,
        "parsed": json.loads(parsed.choices[0].message.content),
        "response": litellm.responses(input=STRUCTURED, **common).output_text,
    }


def of_aidial(url):
    from aidial_client import Dial

    client = Dial(base_url=url.removesuffix("/v1"), api_key="none")
    messages = [{"role": "user", "content": STRUCTURED}]
    request = {"deployment_name": "agent", "messages": messages, "api_version": "2024-10-21"}
    whole = client.chat.completions.create(stream=False, **request)
    chunks = client.chat.completions.create(stream=True, **request)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    # DIAL's agents begin each text of the model with a line end (quickapps 18).
    return [whole.choices[0].message.content.strip(), "".join(pieces).strip()]


def main():
    url, package = sys.argv[1:]
    run = {
        "openai": of_openai,
        "pydantic_ai": of_pydantic_ai,
        "agents": of_agents,
        "langchain": of_langchain,
        "langgraph": of_langgraph,
        "litellm": of_litellm,
        "aidial": of_aidial,
    }[package]
    print(json.dumps(run(f"{url}/v1")))


main()
