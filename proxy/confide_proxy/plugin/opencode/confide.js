// Passes what happens in OpenCode to Confide, and puts its answer beside the person's message or a tool's output. It never fails aloud.
import { spawn } from "node:child_process"
import { connect } from "node:net"

const DEADLINE_MS = 1500
const ACTION_MS = 250
const MOST_CHARS = 32 * 1024
const CALLS = /^(bash|edit|write|patch|multiedit|apply_patch|read)$|web|fetch|browser|codesearch|^(?!confide_|plan_)[^_]+_/i

function ask({ program = "confide", environment = {} }, event) {
  return new Promise((resolve) => {
    let said = ""
    const child = spawn(program, ["hook"], { cwd: event.cwd, env: { ...process.env, ...environment }, stdio: ["pipe", "pipe", "ignore"] })
    const timer = setTimeout(() => child.kill("SIGKILL"), DEADLINE_MS)
    const end = () => { clearTimeout(timer); resolve(said) }
    child.on("error", end).on("close", end)
    child.stdout.on("data", (data) => { said += data })
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify(event))
  })
}

// At a tool call the session's own socket is asked, which takes a millisecond or two, where a process takes thirty. Without an answer, a process is.
function askAtOnce({ socket, ...options }, event) {
  if (!socket) return ask(options, event)
  return new Promise((resolve) => {
    let said = ""
    const connection = connect(socket)
    const timer = setTimeout(() => { resolve(""); connection.destroy() }, ACTION_MS)
    connection.on("data", (data) => { said += data; if (said.endsWith("\n")) connection.destroy() })
    connection.on("error", () => {})
    connection.on("close", () => { clearTimeout(timer); resolve(said.endsWith("\n") ? said : ask(options, event)) })
    connection.write(JSON.stringify({ event, ms: ACTION_MS, pid: process.pid, is_logged: process.env.CONFIDE_HOOKS === "log" }) + "\n")
  })
}

const context = (text) => { try { return JSON.parse(text).hookSpecificOutput.additionalContext } catch { return "" } }

export const Confide = async ({ client, directory }, options = {}) => {
  if (process.env.CONFIDE_HOOKS === "off" || process.env.CONFIDE_LEARNING) return {}
  // OpenCode starts its servers when the first prompt is on its way, too late for that one's hits. To ask how they are starts them now.
  Promise.resolve().then(() => client.mcp.status()).catch(() => {})
  const unbriefed = new Map() // sessions that have no briefing yet, and why: they are new, or were compacted
  const told = (hook_event_name, session_id, more) => ({ client: "opencode", cwd: directory, hook_event_name, session_id, ...more })
  const tell = (...event) => ask(options, told(...event)).then(context)
  return {
    event: async ({ event: { type, properties } }) => {
      if (type === "session.created" && !properties.info.parentID) unbriefed.set(properties.info.id, "startup")
      if (type === "session.compacted") unbriefed.set(properties.sessionID, "compact")
      if (type === "session.idle") await tell("Stop", properties.sessionID)
    },
    "tool.execute.after": async ({ tool, sessionID, args }, result) => {
      if (!CALLS.test(tool)) return
      const [command, filePath, patchText] = [args?.command, args?.filePath, args?.patchText].map((value) => value?.slice?.(0, MOST_CHARS))
      const output = typeof result?.output === "string" ? result.output : ""
      const more = { tool_input: { command, filePath, patchText }, tool_response: { output: output.slice(-MOST_CHARS), exit: result?.metadata?.exit } }
      const text = context(await askAtOnce(options, told("PostToolUse", sessionID, { tool_name: tool, ...more })))
      if (text && output) result.output = `${output}\n\n${text}`
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
