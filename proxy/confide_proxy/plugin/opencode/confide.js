// Pipes what happens in OpenCode to `confide hook`, and puts its answer beside the person's message. It never fails aloud.
import { spawn } from "node:child_process"

const DEADLINE_MS = 1500

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
