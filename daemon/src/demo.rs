//! `session-checkpointd demo`: the main job, played as a client would, in a folder of its own.
//!
//! A first session saves; one file is committed as it was, another is edited; a second session finds the
//! first one's checkpoint and gets the brief that names exactly the edited file. Everything goes through the
//! real shim and a daemon of the demo's own, and anything that is off is an error.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use protocol::env;
use protocol::os;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::cli;
use crate::tools::schema::{LOAD, SAVE};

/// Plays it.
pub(crate) fn play() -> Result<(), String> {
    let stage = Stage::new()?;
    let say = |line: &str| cli::print(line);
    say(&format!("A git repository in {}", stage.project.display()))?;
    stage.write(
        "src/session.ts",
        "export const cookie = { secure: true };\n",
    )?;
    stage.write("src/callback.ts", "export function callback() {}\n")?;
    stage.git(&["init", "--quiet", "--initial-branch=main"])?;
    stage.git(&["add", "--all"])?;
    stage.commit("Start")?;
    stage.git(&["switch", "--quiet", "--create", "feat/github-login"])?;

    stage.write(
        "src/session.ts",
        "export const cookie = { secure: true, sameSite: 'lax' };\n",
    )?;
    stage.write(
        "src/callback.ts",
        "export function callback(code: string) {}\n",
    )?;
    stage.write(
        "src/session.spec.ts",
        "test('the cookie stays', () => {});\n",
    )?;

    say("Session one works on three files and saves a checkpoint:")?;
    let saved = stage.session("session-one")?.call(SAVE, &json!({
        "goal": "Log in with GitHub and stay logged in",
        "tasks": [
            {"description": "Callback route", "status": "done"},
            {"description": "Keep the session in a cookie", "status": "in_progress"},
            {"description": "Log out", "status": "pending"}
        ],
        "summary": "The callback creates a session, but the cookie is gone after a reload.",
        "nextSteps": ["Set secure only in production, in src/session.ts", "Run npm test -- session"],
        "decisions": ["The GitHub API is not mocked in end-to-end tests: recorded answers are used"],
        "modifiedFiles": [{"path": "src/session.ts", "note": "cookie options"}],
        "recentCommands": [
            {"command": format!("GITHUB_CLIENT_SECRET={} npm run dev", ["s3cr3t", "Value", "42"].concat()), "exitCode": 0},
            {"command": "npm test -- session", "exitCode": 1, "note": "the cookie is missing after a reload"}
        ]
    }))?;
    say(&indented(text(&saved)?))?;

    say(
        "The session crashes. A colleague commits src/callback.ts as it is, and edits src/session.ts.",
    )?;
    stage.git(&["add", "src/callback.ts"])?;
    stage.commit("Take the code in the callback")?;
    stage.write(
        "src/session.ts",
        "export const cookie = { secure: false, sameSite: 'lax' };\n",
    )?;

    say("Session two starts blind and loads:")?;
    let mut second = stage.session("session-two")?;
    let candidates = second.call(LOAD, &json!({}))?;
    expect(&candidates, "/found", &json!(false))?;
    expect(&candidates, "/candidates/0/selector", &json!("session-one"))?;
    say(&indented(text(&candidates)?))?;

    say("The user picks session-one, and the session gets its brief:\n")?;
    let brief = second.call(LOAD, &json!({"checkpoint": "session-one"}))?;
    expect(&brief, "/found", &json!(true))?;
    expect(&brief, "/drift/changedSince", &json!(["src/session.ts"]))?;
    expect(&brief, "/drift/newSince", &json!([]))?;
    expect(&brief, "/drift/commitsSince", &json!(1))?;
    say(text(&brief)?)
}

fn text(answer: &Value) -> Result<&str, String> {
    answer["text"]
        .as_str()
        .ok_or_else(|| format!("an answer without text: {answer}"))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  | {line}\n")).collect()
}

fn expect(answer: &Value, pointer: &str, wanted: &Value) -> Result<(), String> {
    match answer.pointer(pointer) {
        Some(found) if found == wanted => Ok(()),
        found => Err(format!(
            "{pointer} should be {wanted} and is {found:?} in {answer}"
        )),
    }
}

/// A folder with a project, a home, a state directory and a socket, which goes when the demo ends.
struct Stage {
    folder: PathBuf,
    project: PathBuf,
}

impl Stage {
    fn new() -> Result<Stage, String> {
        let name = format!(
            "session-checkpoint-demo-{}",
            &Uuid::new_v4().simple().to_string()[..8]
        );
        let folder = std::env::temp_dir().join(name);
        let project = folder.join("my-app");
        std::fs::create_dir_all(&project)
            .map_err(|error| format!("could not make `{}` ({error})", project.display()))?;
        Ok(Stage { folder, project })
    }

    fn write(&self, name: &str, content: &str) -> Result<(), String> {
        let path = self.project.join(name);
        let directory = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(&path, content))
            .map_err(|error| format!("could not write `{}` ({error})", path.display()))
    }

    fn git(&self, arguments: &[&str]) -> Result<(), String> {
        let status = Command::new("git")
            .args([
                "-c",
                "user.name=Demo",
                "-c",
                "user.email=demo@localhost",
                "-c",
                "commit.gpgsign=false",
            ])
            .args(arguments)
            .current_dir(&self.project)
            .status()
            .map_err(|error| format!("could not run git ({error}): install it for the demo"))?;
        status
            .success()
            .then_some(())
            .ok_or_else(|| format!("git {} failed", arguments.join(" ")))
    }

    fn commit(&self, message: &str) -> Result<(), String> {
        self.git(&["commit", "--quiet", "--message", message])
    }

    fn socket(&self) -> PathBuf {
        os::socket_in(&self.folder)
    }

    /// A client of the shim beside this program.
    fn session(&self, id: &str) -> Result<Client, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let shim = own.with_file_name(format!(
            "session-checkpoint-mcp{}",
            std::env::consts::EXE_SUFFIX
        ));
        let child = Command::new(&shim)
            .current_dir(&self.project)
            .env(env::SOCKET, self.socket())
            .env(env::STATE_DIR, self.folder.join("state"))
            .env(env::DAEMON, &own)
            .env(env::CLAUDE_CODE_SESSION_ID, id)
            .env_remove(env::CLAUDE_PROJECT_DIR)
            .env_remove(env::CHECKPOINT_PROJECT_ROOT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("could not run `{}` ({error})", shim.display()))?;
        Client::start(child)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The demo is over either way; what can't be cleared away is in the temporary directory.
        let stopped = cli::stop_at(&self.socket());
        let removed = std::fs::remove_dir_all(&self.folder);
        tracing::debug!(?stopped, ?removed, "the demo ended");
    }
}

/// A minimal MCP client.
struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
}

impl Client {
    fn start(mut child: Child) -> Result<Client, String> {
        let stdin = child.stdin.take().ok_or("no standard input")?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let mut client = Client {
            child,
            stdin,
            stdout: BufReader::new(stdout),
            next_id: 1,
        };
        client.request(
            "initialize",
            &json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "demo", "version": protocol::VERSION}
            }),
        )?;
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(client)
    }

    fn send(&mut self, message: &Value) -> Result<(), String> {
        writeln!(self.stdin, "{message}")
            .map_err(|error| format!("the shim can't be written to ({error})"))
    }

    fn request(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        let mut line = String::new();
        self.stdout
            .read_line(&mut line)
            .map_err(|error| format!("the shim can't be read ({error})"))?;
        let mut answer: Value = serde_json::from_str(&line)
            .map_err(|error| format!("the shim answered {line:?} ({error})"))?;
        if answer["id"] != json!(id) || answer.get("result").is_none() {
            return Err(format!("{method} was answered {answer}"));
        }
        Ok(answer["result"].take())
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value, String> {
        let mut result =
            self.request("tools/call", &json!({"name": tool, "arguments": arguments}))?;
        if result["isError"] == json!(true) {
            return Err(format!("{tool} failed: {result}"));
        }
        Ok(result["structuredContent"].take())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It has answered all it was asked; being a child of the demo, it must be reaped.
        let ended = self.child.kill().and_then(|()| self.child.wait());
        tracing::debug!(?ended, "a session ended");
    }
}
