// Runs agents of packages from npm, with their own tools, against the orchestrator, and prints a report as JSON.
//
//     node npm_packages.mjs URL {openai,ai,agents,langchain}

import { z } from "zod";

const [url, name] = process.argv.slice(2);

const QUESTION = "What is it like in Paris?";
const STRUCTURED = "Paris as JSON, please.";
const baseURL = `${url}/v1`;
const weather = ({ city }) => `sunny in ${city}`;

const city = z.object({ name: z.string(), degrees: z.number() });
const place = z.object({ city: z.string() });

async function ofOpenai() {
  const { default: OpenAI } = await import("openai");
  const { zodResponseFormat, zodTextFormat } = await import("openai/helpers/zod");
  const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
  const messages = [{ role: "user", content: QUESTION }];
  const tool = {
    type: "function",
    function: {
      name: "weather",
      parse: JSON.parse,
      function: weather,
      parameters: { type: "object", properties: { city: { type: "string" } } },
    },
  };
  const runner = client.chat.completions.runTools({ model: "agent", messages, tools: [tool] });
  const answer = await runner.finalContent();
  const streaming = client.chat.completions.runTools({ model: "agent", messages, tools: [tool], stream: true });
  let deltas = "";
  streaming.on("content", (delta) => (deltas += delta));
  await streaming.finalContent();
  const parsed = await client.chat.completions.parse({
    model: "agent",
    messages: [{ role: "user", content: STRUCTURED }],
    response_format: zodResponseFormat(city, "city"),
  });
  const response = await client.responses.create({ model: "agent", input: "hello" });
  const next = await client.responses.create({
    model: "agent",
    input: "hello again",
    previous_response_id: response.id,
  });
  const events = [];
  for await (const event of client.responses.stream({ model: "agent", input: "hello" })) events.push(event.type);
  const structured = await client.responses.parse({
    model: "agent",
    input: STRUCTURED,
    text: { format: zodTextFormat(city, "city") },
  });
  const file = await client.files.create({ file: new File(["a,b\n1,2\n"], "a.csv"), purpose: "assistants" });
  const content = await (await client.files.content(file.id)).text();
  const background = await client.responses.create({ model: "agent", input: "hello", background: true });
  let ended = background;
  while (["queued", "in_progress"].includes(ended.status)) ended = await client.responses.retrieve(background.id);
  return {
    answer,
    streamed: deltas,
    parsed: parsed.choices[0].message.parsed,
    responses: [response.output_text, next.output_text, ended.output_text],
    events: [events[0], events.at(-1)],
    structured: structured.output_parsed,
    file: [file.filename, content],
    refused: await client.chat.completions
      .create({ model: "none", messages })
      .then(() => "no", (error) => [error.constructor.name, error.status]),
  };
}

async function ofAi() {
  const { generateText, streamText, generateObject, stepCountIs, tool } = await import("ai");
  const { createOpenAI } = await import("@ai-sdk/openai");
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const own = createOpenAI({ baseURL, apiKey: "none" });
  const models = {
    compatible: createOpenAICompatible({ name: "dray", baseURL, supportsStructuredOutputs: true })("agent"),
    chat: own.chat("agent"),
    responses: own.responses("agent"),
  };
  const tools = { weather: tool({ inputSchema: place, execute: weather }) };
  const report = {};
  for (const [kind, model] of Object.entries(models)) {
    const options = { model, tools, prompt: QUESTION, stopWhen: stepCountIs(3), maxRetries: 0 };
    const answer = await generateText(options);
    const stream = streamText(options);
    let streamed = "";
    for await (const piece of stream.textStream) streamed += piece;
    const { object } = await generateObject({ model, schema: city, prompt: STRUCTURED, maxRetries: 0 });
    report[kind] = { answer: answer.text, steps: answer.steps.length, streamed, parsed: object };
  }
  return report;
}

async function ofAgents() {
  const agents = await import("@openai/agents");
  const { default: OpenAI } = await import("openai");
  agents.setTracingDisabled(true);
  const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
  const report = {};
  for (const [kind, Model] of Object.entries({
    chat: agents.OpenAIChatCompletionsModel,
    responses: agents.OpenAIResponsesModel,
  })) {
    const model = new Model(client, "agent");
    const tools = [
      agents.tool({ name: "weather", description: "The weather of a city.", parameters: place, execute: weather }),
    ];
    const guide = new agents.Agent({ name: "guide", instructions: "Be brief.", model, tools });
    const list = new agents.Agent({ name: "list", model, outputType: city });
    const answer = await agents.run(guide, QUESTION);
    const stream = await agents.run(guide, QUESTION, { stream: true });
    let streamed = "";
    for await (const piece of stream.toTextStream()) streamed += piece;
    await stream.completed;
    const parsed = await agents.run(list, STRUCTURED);
    report[kind] = { answer: answer.finalOutput, streamed, parsed: parsed.finalOutput };
  }
  return report;
}

async function ofLangchain() {
  const { ChatOpenAI } = await import("@langchain/openai");
  const { tool } = await import("@langchain/core/tools");
  const { createReactAgent } = await import("@langchain/langgraph/prebuilt");
  const report = {};
  for (const [kind, useResponsesApi] of [["chat", false], ["responses", true]]) {
    const model = new ChatOpenAI({
      model: "agent",
      apiKey: "none",
      maxRetries: 0,
      useResponsesApi,
      configuration: { baseURL },
    });
    const tools = [tool(weather, { name: "weather", description: "The weather of a city.", schema: place })];
    const agent = createReactAgent({ llm: model, tools, prompt: "Be brief." });
    const input = { messages: [{ role: "user", content: QUESTION }] };
    const answer = await agent.invoke(input);
    let streamed = "";
    for await (const [message, at] of await agent.stream(input, { streamMode: "messages" })) {
      if (at.langgraph_node === "agent") streamed += message.text;
    }
    const parsed = await model.withStructuredOutput(city, { method: "jsonSchema" }).invoke(STRUCTURED);
    report[kind] = { answer: answer.messages.at(-1).text, streamed, parsed };
  }
  return report;
}

const run = { openai: ofOpenai, ai: ofAi, agents: ofAgents, langchain: ofLangchain }[name];
console.log(JSON.stringify(await run()));
