// Pipes what happens in OpenCode to `confide hook`, and puts its answer beside the person's message. It never fails aloud.
import { spawn } from "node:child_process"
import { connect } from "node:net"

const DEADLINE_MS = 1500
const ACTION_MS = 250
const MOST_OUTPUT = 32 * 1024
const FOREIGN = /web|fetch|browser|^(?!confide_|plan_|apply_)[^_]+_/i // pages, and tools of other MCP servers
const FETCHES = /\b(curl|wget|lynx|w3m|gh|glab)\s(?!.*(localhost|127\.0\.0\.1))|https?:\/\/(?!localhost|127\.0\.0\.1)/
const ACTIONS = ["bash", "edit", "write", "patch", "multiedit", "apply_patch"]

function ask({ program = "confide", environment = {} }, cwd, event) {
  return new Promise((resolve) => {
    let said = ""
    const child = spawn(program, ["hook"], { cwd, env: { ...process.env, ...environment }, stdio: ["pipe", "pipe", "ignore"] })
    const timer = setTimeout(() => child.kill("SIGKILL"), DEADLINE_MS)
    const end = () => { clearTimeout(timer); resolve(said) }
    child.on("error", end).on("close", end)
    child.stdout.on("data", (data) => { said += data })
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify({ client: "opencode", cwd, ...event }))
  }).then((text) => JSON.parse(text).hookSpecificOutput.additionalContext).catch(() => "")
}

// A tool call is asked about at the session's own socket, which takes a millisecond, where a process would take thirty.
function askAtOnce(socket, event) {
  return new Promise((resolve) => {
    let said = ""
    const connection = connect(socket)
    const end = () => { clearTimeout(timer); connection.destroy(); resolve(said) }
    const timer = setTimeout(end, ACTION_MS)
    connection.on("error", end).on("close", end)
    connection.on("data", (data) => { said += data; if (said.endsWith("\n")) end() })
    connection.write(JSON.stringify({ client: "opencode", ms: ACTION_MS, ...event }) + "\n")
  }).then((text) => JSON.parse(text).context ?? "").catch(() => "")
}

export const Confide = async ({ client, directory }, options) => {
  // OpenCode starts its servers when the first prompt is on its way, too late for that one's hits. To ask how they are starts them now.
  Promise.resolve().then(() => client.mcp.status()).catch(() => {})
  const unbriefed = new Map() // sessions that have no briefing yet, and why: they are new, or were compacted
  const tell = (hook_event_name, session_id, more) =>
    ask(options ?? {}, directory, { hook_event_name, session_id, ...more })
  return {
    event: async ({ event: { type, properties } }) => {
      if (type === "session.created" && !properties.info.parentID) unbriefed.set(properties.info.id, "startup")
      if (type === "session.compacted") unbriefed.set(properties.sessionID, "compact")
      if (type === "session.idle") await tell("Stop", properties.sessionID)
    },
    "tool.execute.after": async ({ tool, sessionID, args }, result) => {
      const isForeign = tool === "bash" ? FETCHES.test(args?.command) : FOREIGN.test(tool) && !ACTIONS.includes(tool)
      if (isForeign || tool === "read") tell("PostToolUse", sessionID, { tool_name: isForeign ? `mcp__${tool}` : tool, tool_input: { file_path: args?.filePath } })
      if (!options?.socket || !ACTIONS.includes(tool) || typeof result?.output !== "string") return
      const { output, metadata } = result
      const failed = typeof metadata?.exit === "number" ? metadata.exit !== 0 : null
      const paths = tool === "bash" ? [] : [args?.filePath].filter((path) => typeof path === "string")
      const call = { tool, command: tool === "bash" ? String(args?.command ?? "").slice(0, 8192) : "", paths, failed }
      const text = await askAtOnce(options.socket, { kind: "after", session: sessionID, cwd: directory, output: output.slice(-MOST_OUTPUT), ...call })
      if (text) result.output = `${output}\n\n${text}`
    },
    "chat.message": async ({ sessionID }, { message, parts }) => {
      const prompt = parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text).join("\n")
      const source = unbriefed.get(sessionID)
      unbriefed.delete(sessionID)
      const asked = [source ? tell("SessionStart", sessionID, { source }) : "", tell("UserPromptSubmit", sessionID, { prompt })]
      for (const [at, text] of (await Promise.all(asked)).entries())
        if (text) parts.push({ id: `prt_confide${Date.now()}${at}`, sessionID, messageID: message.id, type: "text", synthetic: true, text })
    },
  }
}
