"""The contract as tools for agents, over the Model Context Protocol: a thin face over the async client.

`server.Server` is what is served, `stdio` and `http` are the two ways to serve it. Needs the extra `mcp`; the SDK is imported in
here alone. Rules about handoffs are the daemon's, those about leases the client's; what agents hold in this process is `record`'s.
"""
