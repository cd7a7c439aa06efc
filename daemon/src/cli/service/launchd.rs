//! launchd: an agent of this user with a socket, started when a client comes.

use protocol::os;

use super::{Manager, own_program, words, xml};
use crate::config::Config;

pub(super) fn manager(config: &Config) -> Result<Manager, String> {
    let home = config
        .home
        .as_ref()
        .ok_or("there is no home directory to put an agent in")?;
    let path = home.join("Library/LaunchAgents/session-checkpoint.plist");
    let place = config.place().map_err(|error| error.to_string())?;
    os::make_private_dir(&place.directory)
        .map_err(|error| format!("could not make `{}` ({error})", place.directory.display()))?;
    let agent = include_str!("../../../units/session-checkpoint.plist")
        .replace(
            "/usr/local/bin/session-checkpointd",
            &xml(&own_program()?.to_string_lossy()),
        )
        .replace(
            "/tmp/session-checkpoint/daemon.sock",
            &xml(&place.socket.to_string_lossy()),
        );
    let domain = format!("gui/{}", os::user());
    let mut enable = words(&format!("launchctl bootstrap {domain}"));
    enable.push(path.to_string_lossy().into_owned());
    Ok(Manager {
        units: vec![(path, agent)],
        enable: vec![enable],
        disable: vec![words(&format!(
            "launchctl bootout {domain}/session-checkpoint"
        ))],
        ask: words(&format!("launchctl print {domain}/session-checkpoint")),
    })
}
