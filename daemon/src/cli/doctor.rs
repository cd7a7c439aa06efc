//! `doctor`: the whole way between a client and its checkpoints, a line each, with what to do.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use protocol::{files, os, state};
use serde_json::{Value, json};

use crate::cli::control::{self, NoStatus};
use crate::cli::print;
use crate::config::Config;
use crate::git;

/// Fewer watches than this are soon used up by an editor and a few projects.
const FEW_WATCHES: u64 = 65_536;

/// What a check found.
enum Finding {
    Well(String),
    /// It works, and could be better.
    Odd(String, String),
    /// It doesn't work.
    Broken(String, String),
}

type Check = fn(&Config) -> Finding;

use Finding::{Broken, Odd, Well};

/// Checks everything and prints it; fails if anything is broken.
pub(super) fn examine(config: &Config) -> Result<(), String> {
    let checks: [(&str, Check); 9] = [
        ("binaries", binaries),
        ("socket", socket),
        ("daemon", daemon),
        ("state", state_directory),
        ("handshake", handshake),
        ("watches", watches),
        ("git", repository),
        ("ignore", ignore_entry),
        ("client", registration),
    ];
    let mut broken = 0;
    for (name, check) in checks {
        let (mark, what, advice) = match check(config) {
            Well(what) => ("ok", what, None),
            Odd(what, advice) => ("note", what, Some(advice)),
            Broken(what, advice) => {
                broken += 1;
                ("FAIL", what, Some(advice))
            }
        };
        print(&format!("{mark:<5}{name:<11}{what}"))?;
        if let Some(advice) = advice {
            print(&format!("{:16}→ {advice}", ""))?;
        }
    }
    match broken {
        0 => Ok(()),
        1 => Err("one check failed".to_owned()),
        n => Err(format!("{n} checks failed")),
    }
}

/// The shim beside this program, and the one that a client finds.
fn binaries(config: &Config) -> Finding {
    let Ok(shim) = own_shim() else {
        return Broken(
            "this program's own path can't be told".to_owned(),
            "install again: `cargo install --locked --path .`".to_owned(),
        );
    };
    if !shim.is_file() {
        return Broken(
            format!("`{}` is missing", shim.display()),
            "install both binaries in one directory".to_owned(),
        );
    }
    let found = config.env.get("PATH").and_then(|path| {
        std::env::split_paths(path)
            .map(|directory| directory.join(shim.file_name().unwrap_or_default()))
            .find(|candidate| candidate.is_file())
    });
    match found {
        None => Odd(
            format!("`{}` is not in a directory of PATH", shim.display()),
            "name it by its absolute path in the client's configuration".to_owned(),
        ),
        Some(found) if found.canonicalize().ok() != shim.canonicalize().ok() => Odd(
            format!("clients find another one: `{}`", found.display()),
            format!(
                "remove it, or put `{}` first in PATH",
                shim.parent().unwrap_or(Path::new("/")).display()
            ),
        ),
        Some(found) => Well(format!("{} {}", found.display(), config.build.version)),
    }
}

fn own_shim() -> std::io::Result<PathBuf> {
    let name = format!("session-checkpoint-mcp{}", std::env::consts::EXE_SUFFIX);
    Ok(std::env::current_exe()?.with_file_name(name))
}

fn socket(config: &Config) -> Finding {
    let place = match config.place() {
        Ok(place) => place,
        Err(error) => {
            return Broken(
                error.to_string(),
                format!("correct or unset {}", protocol::env::SOCKET),
            );
        }
    };
    match place.check(&os::user()) {
        Err(error) if place.directory.exists() => Broken(
            error.to_string(),
            format!(
                "make it yours and private (`chmod 700`), or set {} to a path in a directory that is",
                protocol::env::SOCKET
            ),
        ),
        _ => match usable(&place.directory, &[place.lock(), place.starting()]) {
            Ok(()) => Well(place.socket.display().to_string()),
            Err(reason) => Broken(
                reason,
                format!(
                    "no daemon can start there; make it yours, or set {} to a path in a directory that is",
                    protocol::env::SOCKET
                ),
            ),
        },
    }
}

/// Whether files can be made in a directory, unless that is still to be made, and those that are there be written.
fn usable(directory: &Path, files: &[PathBuf]) -> Result<(), String> {
    let told = |path: &Path, error: std::io::Error| {
        let whose = os::owner(path).map_or(String::new(), |owner| format!(", of user {owner}"));
        format!("`{}`{whose} can't be written to ({error})", path.display())
    };
    if !directory.exists() {
        return Ok(());
    }
    tempfile_in(directory).map_err(|error| told(directory, error))?;
    for file in files.iter().filter(|file| file.is_file()) {
        let opened = std::fs::File::options().append(true).open(file);
        opened.map_err(|error| told(file, error))?;
    }
    Ok(())
}

fn daemon(config: &Config) -> Finding {
    match control::ask_status(config) {
        Ok(status) if status.version == config.build.version => Well(format!(
            "process {}, version {}",
            status.pid, status.version
        )),
        Ok(status) => {
            let advice = match status.supervisor {
                Some(supervisor) => format!(
                    "{supervisor} starts that version: `session-checkpointd service install` renews the unit"
                ),
                None => "`session-checkpointd stop`; the next client starts the installed one"
                    .to_owned(),
            };
            Odd(
                format!(
                    "version {} runs, {} is installed",
                    status.version, config.build.version
                ),
                advice,
            )
        }
        Err(NoStatus::NotRunning(_)) => Well("not running; the next client starts one".to_owned()),
        Err(error) => Broken(
            error.explain(),
            "until then clients work without a daemon".to_owned(),
        ),
    }
}

fn state_directory(config: &Config) -> Finding {
    let Some(directory) = config.state() else {
        return Odd(
            "there is none: no log, and which session a client is in is not kept".to_owned(),
            format!("set {} or HOME", protocol::env::STATE_DIR),
        );
    };
    let log = directory.join(state::LOG_FILE);
    let made = os::make_private_dir(&directory)
        .map_err(|error| format!("could not make `{}` ({error})", directory.display()))
        .and_then(|()| {
            usable(
                &directory,
                &[log.clone(), directory.join(state::DAEMON_LOCK)],
            )
        });
    match made {
        Ok(()) => Well(format!("{} (log: {})", directory.display(), log.display())),
        Err(reason) => Odd(
            reason,
            "make it writable; checkpoints are saved without it, but there is no log and no hash cache".to_owned(),
        ),
    }
}

/// Whether a file can be made there.
fn tempfile_in(directory: &Path) -> std::io::Result<()> {
    let path = directory.join(format!(".doctor-{}", std::process::id()));
    let written = std::fs::File::create_new(&path)?.write_all(b"well\n");
    std::fs::remove_file(path)?;
    written
}

/// What a client does first, through the real shim.
fn handshake(_config: &Config) -> Finding {
    let advice = "`session-checkpointd logs` may say more".to_owned();
    match initialize() {
        Ok(version) => Well(format!("the shim answers as version {version}")),
        Err(reason) => Broken(reason, advice),
    }
}

fn initialize() -> Result<String, String> {
    let shim = own_shim().map_err(|error| error.to_string())?;
    let failed = |error: std::io::Error| format!("`{}`: {error}", shim.display());
    let mut child = Command::new(&shim)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "session-checkpoint-doctor", "version": protocol::VERSION}}});
    let mut stdin = child.stdin.take().expect("it is piped");
    writeln!(stdin, "{request}").map_err(failed)?;
    // The end of its input ends it, once it has answered.
    drop(stdin);
    let output = child.wait_with_output().map_err(failed)?;
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    match answer["result"]["serverInfo"]["version"].as_str() {
        Some(version) => Ok(version.to_owned()),
        None => Err(format!(
            "the shim gave no answer to `initialize`: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

fn watches(_config: &Config) -> Finding {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    match limit {
        None => Well("the system has no limit of its own".to_owned()),
        Some(limit) if limit < FEW_WATCHES => Odd(
            format!("at most {limit} directories can be watched, by all programs together"),
            "`sudo sysctl fs.inotify.max_user_watches=524288`; a project with too many is examined at each call, which is slower and right".to_owned(),
        ),
        Some(limit) => Well(format!("at most {limit} directories can be watched")),
    }
}

fn repository(_config: &Config) -> Finding {
    let Ok(here) = std::env::current_dir() else {
        return Odd(
            "this directory can't be told".to_owned(),
            "run `doctor` in a project".to_owned(),
        );
    };
    match git::open(&here) {
        Ok(Some(_)) => Well(format!("{} is in a repository", here.display())),
        Ok(None) => Odd(
            format!("{} is in no git repository", here.display()),
            "run `doctor` in a project; without git only the files that an agent names are compared".to_owned(),
        ),
        Err(error) => Odd(
            format!("the repository of {} can't be read: {error}", here.display()),
            "checkpoints are saved without git's facts".to_owned(),
        ),
    }
}

/// Whether git would see checkpoints of the project here.
fn ignore_entry(_config: &Config) -> Finding {
    let directory = PathBuf::from(files::DIRECTORY);
    let ignore = directory.join(".gitignore");
    if !directory.is_dir() {
        return Well("there are no checkpoints here yet".to_owned());
    }
    if let Err(reason) = usable(&directory, &[directory.join(files::LOCK)]) {
        return Broken(
            reason,
            "no checkpoint can be saved here until that directory and what is in it are yours (`chown -R`)".to_owned(),
        );
    }
    match std::fs::read_to_string(&ignore) {
        Ok(text) if text.lines().any(|line| line.trim() == "*") => {
            Well(format!("`{}` keeps them out of git", ignore.display()))
        }
        Ok(_) => Odd(
            format!("`{}` was edited", ignore.display()),
            "a line `*` in it keeps the checkpoints out of git".to_owned(),
        ),
        Err(_) => Odd(
            format!("`{}` is missing", ignore.display()),
            "the next save makes it".to_owned(),
        ),
    }
}

/// Whether Claude Code knows the server, as its configuration files say.
fn registration(config: &Config) -> Finding {
    let mut places: Vec<PathBuf> = vec![".mcp.json".into()];
    if let Some(home) = &config.home {
        places.push(home.join(".claude.json"));
        places.push(home.join(".claude/settings.json"));
    }
    let found = places.iter().find(|path| {
        std::fs::read(path)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok())
            .is_some_and(|settings| mentions(&settings))
    });
    match found {
        Some(path) => Well(format!("Claude Code knows it by `{}`", path.display())),
        None => Odd(
            "Claude Code doesn't know it".to_owned(),
            "`claude mcp add --scope user session-checkpoint -- session-checkpoint-mcp`, or install the plugin; other clients have configurations of their own".to_owned(),
        ),
    }
}

/// Whether a server's command or an enabled plugin is ours.
fn mentions(settings: &Value) -> bool {
    match settings {
        Value::Object(map) => map.iter().any(|(key, value)| {
            key.starts_with("session-checkpoint@") && *value == json!(true) || mentions(value)
        }),
        Value::Array(list) => list.iter().any(mentions),
        Value::String(text) => text.contains("session-checkpoint-mcp"),
        _ => false,
    }
}
