//! systemd's user manager: a socket that it listens on, and a service that it starts when a client comes.

use std::path::{Path, PathBuf};

use super::{Manager, own_program, words};
use crate::config::Config;

pub(super) fn manager(config: &Config) -> Result<Manager, String> {
    let base = config
        .env
        .get("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(config.home.as_ref()?.join(".config")))
        .filter(|path| path.is_absolute())
        .ok_or("there is no home directory to put units in")?;
    let directory = base.join("systemd/user");
    let program = systemd_word(&own_program()?)?;
    let service = include_str!("../../../units/session-checkpoint.service").replace(
        "ExecStart=%h/.cargo/bin/session-checkpointd ",
        &format!("ExecStart={program} "),
    );
    let socket = include_str!("../../../units/session-checkpoint.socket").to_owned();
    Ok(Manager {
        units: vec![
            (directory.join("session-checkpoint.socket"), socket),
            (directory.join("session-checkpoint.service"), service),
        ],
        enable: vec![
            words("systemctl --user daemon-reload"),
            words("systemctl --user enable --now session-checkpoint.socket"),
        ],
        disable: vec![words(
            "systemctl --user disable --now session-checkpoint.socket session-checkpoint.service",
        )],
        ask: words("systemctl --user is-active session-checkpoint.socket"),
    })
}

/// A path as a word of a unit's command: quoted, and with nothing in it for systemd to expand.
/// <https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Command%20lines>
fn systemd_word(path: &Path) -> Result<String, String> {
    let text = path
        .to_str()
        .filter(|text| !text.contains(char::is_control))
        .ok_or("this program's path can't be written into a unit")?;
    let text = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('%', "%%")
        .replace('$', "$$");
    Ok(format!("\"{text}\""))
}
