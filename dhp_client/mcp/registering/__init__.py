"""Entering `dhp mcp` into the configurations of agents.

`agents` knows where each keeps them, and in which form; `json_text` and `toml_text` change a text without touching the rest of it;
`entries` is what both come to: text in, text out; `files` reads and replaces the files. All but the last are pure, and the SDK isn't needed.
"""
