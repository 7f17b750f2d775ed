"""An open-loop load generator of multi-turn chats with shared system prompts, for demo and e2e tests.

It needs Python and aiohttp only, so that it runs inside any serving image.
"""
