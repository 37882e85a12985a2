// A client's host of MCP apps, of the reference implementation's own parts: @modelcontextprotocol/ext-apps has the bridge to the page,
// @modelcontextprotocol/client the session with the server. Its basic-host is an example around the same two, and no package.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { AppBridge, PostMessageTransport, RESOURCE_MIME_TYPE, getToolUiResourceUri } from "@modelcontextprotocol/ext-apps/app-bridge";

const HOST = { name: "host", version: "1" };
const extensions = { "io.modelcontextprotocol/ui": { mimeTypes: [RESOURCE_MIME_TYPE] } };

/** Calls a tool and shows its page, in a frame of an origin of its own; returns the policy that the page asks for. */
window.showTool = async (name, given, theme) => {
  const client = new Client(HOST, { capabilities: { extensions } });
  await client.connect(new StreamableHTTPClientTransport(new URL("/mcp", location.href)));
  const { tools } = await client.listTools();
  const uri = getToolUiResourceUri(tools.find((tool) => tool.name === name));
  const { contents } = await client.readResource({ uri });
  const [{ mimeType, text, _meta }] = contents;
  if (mimeType !== RESOURCE_MIME_TYPE) throw new Error(mimeType);

  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts");
  frame.style = "width: 100%; height: 20px; border: 0";
  document.body.replaceChildren(frame);
  const bridge = new AppBridge(client, HOST, { serverTools: {} }, { hostContext: { theme } });
  bridge.onsizechange = ({ height }) => {
    frame.style.height = `${height}px`;
  };
  const initialized = new Promise((resolve) => {
    bridge.oninitialized = resolve;
  });
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.srcdoc = text;
  await initialized;
  await bridge.sendToolInput({ arguments: given });
  await bridge.sendToolResult(await client.callTool({ name, arguments: given }));
  return _meta.ui.csp;
};
