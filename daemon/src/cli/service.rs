//! `service`: units for the service manager, which then keeps the daemon.
//!
//! The units are those of `daemon/units` in the repository, with this program's path and the socket's place put in.

#[cfg_attr(target_os = "macos", path = "service/launchd.rs")]
#[cfg_attr(windows, path = "service/tasks.rs")]
#[cfg_attr(not(any(windows, target_os = "macos")), path = "service/systemd.rs")]
mod manager;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Subcommand;

use crate::cli::print;
use crate::config::Config;

/// What to do with the units.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Action {
    /// Write the units and enable them.
    Install,
    /// Disable the units and remove them.
    Uninstall,
    /// Say whether they are there, and whether they are active.
    Status,
}

/// Does it, by the service manager of this system.
pub(super) fn act(config: &Config, action: Action) -> Result<(), String> {
    let manager = manager::manager(config)?;
    match action {
        Action::Install => install(&manager),
        Action::Uninstall => uninstall(&manager),
        Action::Status => status(&manager),
    }
}

/// A service manager, as far as it matters here.
struct Manager {
    /// The units: where they belong, and what they hold.
    units: Vec<(PathBuf, String)>,
    /// What makes them known, and what makes them forgotten.
    enable: Vec<Vec<String>>,
    disable: Vec<Vec<String>>,
    /// What tells whether they are active.
    ask: Vec<String>,
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn install(manager: &Manager) -> Result<(), String> {
    let before: Vec<Option<Vec<u8>>> = manager
        .units
        .iter()
        .map(|(path, _)| std::fs::read(path).ok())
        .collect();
    for (path, text) in &manager.units {
        let directory = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(path, text))
            .map_err(|error| format!("could not write `{}` ({error})", path.display()))?;
        print(&format!("wrote {}", path.display()))?;
    }
    for command in &manager.enable {
        if let Err(reason) = run(command) {
            // Units that nothing knows of would only mislead; what was there before is put back.
            for ((path, _), before) in manager.units.iter().zip(before) {
                let _restored = match before {
                    Some(bytes) => std::fs::write(path, bytes),
                    None => std::fs::remove_file(path),
                };
            }
            return Err(format!("{reason}; nothing was installed"));
        }
    }
    print(
        "installed: the next client is served by it; a daemon that a client started leaves by itself",
    )
}

fn uninstall(manager: &Manager) -> Result<(), String> {
    let disabled: Result<Vec<()>, String> = manager.disable.iter().map(|one| run(one)).collect();
    for (path, _) in &manager.units {
        match std::fs::remove_file(path) {
            Ok(()) => print(&format!("removed {}", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("could not remove `{}` ({error})", path.display())),
        }
    }
    disabled.map(|_| ())
}

fn status(manager: &Manager) -> Result<(), String> {
    for (path, text) in &manager.units {
        let state = match std::fs::read_to_string(path) {
            Ok(there) if there == *text => "installed",
            Ok(_) => {
                "installed, and not as this version writes it: `session-checkpointd service install` renews it"
            }
            Err(_) => "not installed",
        };
        print(&format!("{}: {state}", path.display()))?;
    }
    let active = run(&manager.ask).is_ok();
    print(if active { "active" } else { "not active" })
}

/// Runs one of the service manager's own commands.
fn run(command: &[String]) -> Result<(), String> {
    let line = command.join(" ");
    let (program, arguments) = command.split_first().expect("a command has a program");
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("could not run `{line}` ({error})"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{line}` failed: {}", said.trim()))
}

fn own_program() -> Result<PathBuf, String> {
    std::env::current_exe()
        .map_err(|error| format!("this program's own path can't be told ({error})"))
}

/// Text of a file in XML.
#[cfg(any(windows, target_os = "macos"))]
fn xml(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
