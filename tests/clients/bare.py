"""The smallest MCP server there can be, with no tools: how soon a client connects to it says how busy the machine is."""

import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    params = message.get("params", {})
    capabilities = {"tools": {}}
    info = {"name": "bare", "version": "1"}
    result = {
        "resultType": "complete",
        "tools": [],
        "prompts": [],
        "resources": [],
        "cacheScope": "private",
        "ttlMs": 0,
    }
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    if message["method"] == "initialize":
        answer["result"] = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": capabilities,
            "serverInfo": info,
        }
    elif message["method"] == "server/discover":
        meta = {"io.modelcontextprotocol/serverInfo": info}
        answer["result"] = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "resultType": "complete"}
        answer["result"] |= {"_meta": meta, "cacheScope": "private", "ttlMs": 0}
    elif message["method"] == "subscriptions/listen":
        told = {"notifications": {}, "_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
        answer = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": told}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
