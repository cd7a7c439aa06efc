// Plays the main job with the real Claude Code: its model is scripted and listens on loopback, its home is new.
//
//   node play.mjs CLAUDE BIN
//
// CLAUDE is the client's program, BIN the directory with both binaries. Prints what the model was shown, and fails
// where that is not what it should be.
import assert from "node:assert/strict";
import { spawn, spawnSync, execFileSync } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";

const [claude, bin] = process.argv.slice(2).map((file) => path.resolve(file));
const repository = path.resolve(import.meta.dirname, "../..");
const world = fs.mkdtempSync(path.join(os.tmpdir(), "sc-real-"));
const project = path.join(world, "project");

/** What the model says, in order: text, or a call of the tool whose name ends with the key. */
let script = [];
/** What it says in a subagent, and in a client within the client: those whose prompt bears this mark. */
let otherScripts = { subagent: [], nested: [] };
/** Every request of the model's, as the client sent it. */
let requests = [];

const model = http.createServer((request, response) => {
  let body = "";
  request.on("data", (chunk) => (body += chunk));
  request.on("end", () => {
    if (!request.url.startsWith("/v1/messages") || request.url.includes("count_tokens")) {
      response.writeHead(404).end("{}");
      return;
    }
    const asked = JSON.parse(body);
    const mark = /\[\[(subagent|nested)\]\]/.exec(JSON.stringify(asked.messages[0]))?.[1];
    const hasTools = (asked.tools ?? []).length > 1;
    let said = "ok";
    if (hasTools) {
      requests.push({ mark, text: JSON.stringify(asked.messages) });
      said = (mark ? otherScripts[mark] : script).shift() ?? "The script is over.";
    }
    if (said === null) return; // it never answers: the session is about to crash
    stream(response, blocks(said, body), asked.model);
  });
});

function blocks(said, body) {
  if (typeof said === "string") return [{ type: "text", text: said }];
  const [[name, input]] = Object.entries(said);
  const found = new RegExp(`mcp__[A-Za-z0-9_-]+__${name}`).exec(body);
  return [{ type: "tool_use", id: `toolu_${requests.length}`, name: found?.[0] ?? name, input }];
}

function stream(response, content, name) {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const send = (type, data) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
  const usage = { input_tokens: 10, output_tokens: 10 };
  const message = { id: `msg_${requests.length}`, type: "message", role: "assistant", model: name, content: [], stop_reason: null, usage };
  send("message_start", { message });
  content.forEach((block, index) => {
    const isTool = block.type === "tool_use";
    send("content_block_start", { index, content_block: isTool ? { ...block, input: {} } : { type: "text", text: "" } });
    const delta = isTool
      ? { type: "input_json_delta", partial_json: JSON.stringify(block.input) }
      : { type: "text_delta", text: block.text };
    send("content_block_delta", { index, delta });
    send("content_block_stop", { index });
  });
  const stop_reason = content[0].type === "tool_use" ? "tool_use" : "end_turn";
  send("message_delta", { delta: { stop_reason, stop_sequence: null }, usage });
  send("message_stop", {});
  response.end();
}

const environment = () => ({
  HOME: path.join(world, "home"),
  PATH: `${bin}:${process.env.PATH}`,
  TMPDIR: world,
  ANTHROPIC_BASE_URL: `http://127.0.0.1:${model.address().port}`,
  ANTHROPIC_API_KEY: "none",
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  DISABLE_AUTOUPDATER: "1",
  IS_SANDBOX: "1",
  SESSION_CHECKPOINT_SOCKET: path.join(world, "daemon.sock"),
  SESSION_CHECKPOINT_STATE_DIR: path.join(world, "state"),
});

function cli(...args) {
  const done = spawnSync(claude, args, { env: environment(), cwd: project, encoding: "utf8", timeout: 60_000 });
  assert.equal(done.status, 0, `claude ${args.join(" ")}: ${done.stdout}${done.stderr}`);
  return done.stdout;
}

/** A session in print mode; ends by itself, or when `until` holds and it is killed. */
async function session(prompt, until) {
  requests = [];
  const child = spawn(claude, ["-p", prompt, "--permission-mode", "bypassPermissions"], {
    env: environment(),
    cwd: project,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  child.stdout.on("data", (chunk) => (output += chunk));
  child.stderr.on("data", (chunk) => (output += chunk));
  const ended = new Promise((resolve) => child.on("close", resolve));
  const deadline = Date.now() + 90_000;
  while (child.exitCode === null && child.signalCode === null) {
    if (until?.()) child.kill("SIGKILL");
    assert.ok(Date.now() < deadline, `the session goes on and on: ${output}`);
    await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 20))]);
  }
  await ended;
}

const git = (...args) => execFileSync("git", ["-c", "user.name=t", "-c", "user.email=t@example.com", ...args], { cwd: project });
const write = (name, text) => fs.writeFileSync(path.join(project, name), text);
const shown = (what, mark) =>
  requests.filter((one) => one.mark === mark).map((one) => one.text).filter((text) => text.includes(what));
const checkpoints = () => {
  const directory = path.join(project, ".claude-checkpoints");
  return fs.readdirSync(directory).filter((name) => name.endsWith(".json")).map((name) => JSON.parse(fs.readFileSync(path.join(directory, name))));
};
const excerpt = (text, from, length) => text.slice(Math.max(0, text.indexOf(from)), text.indexOf(from) + length);

try {
  for (const directory of ["home", "project"]) fs.mkdirSync(path.join(world, directory));
  await new Promise((resolve) => model.listen(0, "127.0.0.1", resolve));
  write("kept.txt", "one\n");
  write("edited.txt", "one\n");
  git("init", "--quiet");
  git("add", "--all");
  git("commit", "--quiet", "--message", "start");
  write("kept.txt", "two\n");
  write("edited.txt", "two\n");

  cli("plugin", "validate", path.join(repository, "plugin"));
  cli("plugin", "marketplace", "add", repository);
  cli("plugin", "install", "session-checkpoint@session-checkpoint");

  script = [{ save_session_checkpoint: { goal: "Make it fly", nextSteps: ["Add wings"] } }, null];
  await session("work", () => requests.length === 2);
  assert.equal(shown("This project has").length, 0, "nothing to tell of yet");
  const [first] = checkpoints();
  assert.equal(first.goal.primary, "Make it fly");

  write("edited.txt", "three\n");
  script = [
    { load_session_checkpoint: {} },
    { load_session_checkpoint: { checkpoint: first.sessionId } },
    "done",
  ];
  await session("go on");
  const nudged = shown("This project has 1 session checkpoint");
  assert.ok(nudged.length > 0, "the start carries the nudge");
  console.log("--- the nudge\n" + excerpt(nudged[0], "This project has", 400));
  const candidates = shown("candidates");
  assert.ok(candidates.some((text) => text.includes(first.sessionId)), "the load lists candidates");
  const briefs = shown("# Resuming: project");
  assert.ok(briefs.length > 0, "the resume shows the brief");
  const since = excerpt(briefs[0], "## Since this checkpoint", 300);
  assert.match(since, /edited\.txt/);
  assert.doesNotMatch(since, /kept\.txt/);
  console.log("--- the brief\n" + excerpt(briefs[0], "# Resuming: project", 900));

  script = [
    { Agent: { description: "a part", prompt: "[[subagent]] do a part", subagent_type: "general-purpose", run_in_background: false } },
    { save_session_checkpoint: { goal: "The parent's goal" } },
    "done",
  ];
  otherScripts.subagent = [{ save_session_checkpoint: { goal: "The subagent's goal" } }, "reported"];
  await session("delegate");
  const denied = shown("Subagents don't save checkpoints", "subagent");
  assert.ok(denied.length > 0, "the subagent is told why its save is denied");
  console.log("--- the denial\n" + excerpt(denied[0], "PreToolUse:", 400));
  const goals = checkpoints().map((checkpoint) => checkpoint.goal.primary);
  assert.deepEqual(goals.sort(), ["Make it fly", "The parent's goal"]);

  // A client without hooks inside one with hooks: the word of the one around it is not its own.
  const inner = `env -u CLAUDECODE '${claude}' -p '[[nested]] work' --permission-mode bypassPermissions --settings '{"disableAllHooks":true}'`;
  script = [{ Bash: { command: inner, description: "a client within the client" } }, { save_session_checkpoint: { goal: "The outer goal" } }, "done"];
  otherScripts.nested = [{ save_session_checkpoint: { goal: "The inner goal" } }, "done"];
  await session("nest");
  const saved = (goal) => checkpoints().filter((checkpoint) => checkpoint.goal.primary === goal);
  assert.equal(saved("The outer goal").length, 1, "the outer client saves");
  assert.equal(saved("The inner goal").length, 1, "the inner client's save is not overwritten by the outer one's");
  assert.notEqual(saved("The outer goal")[0].sessionId, saved("The inner goal")[0].sessionId);
  console.log(`--- nested: ${saved("The inner goal")[0].sessionId} within ${saved("The outer goal")[0].sessionId}`);
  console.log("--- all well");
} finally {
  model.close();
  spawnSync(path.join(bin, "session-checkpointd"), ["stop"], { env: { ...process.env, SESSION_CHECKPOINT_SOCKET: path.join(world, "daemon.sock") } });
  fs.rmSync(world, { recursive: true, force: true });
}
process.exit();
