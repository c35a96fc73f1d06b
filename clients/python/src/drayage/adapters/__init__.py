"""Adapters for frameworks, each in a module that imports its framework: `deepagents`, `openai_agents`, `openai_sandbox` and
`pydantic_ai`."""
