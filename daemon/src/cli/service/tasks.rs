//! The task scheduler of Windows: a task that starts the daemon when this user logs on.

use protocol::{os, state};

use super::{Manager, own_program, words, xml};
use crate::config::Config;

pub(super) fn manager(config: &Config) -> Result<Manager, String> {
    let state = state::directory(&config.env)
        .ok_or("there is no state directory to put the task in: set LOCALAPPDATA")?;
    let path = state.join("session-checkpoint.xml");
    let task = include_str!("../../../units/session-checkpoint.xml")
        .replace("S-1-5-32-545", &os::user().to_string())
        .replace(
            "session-checkpointd.exe",
            &xml(&own_program()?.to_string_lossy()),
        );
    let mut create = words("schtasks /Create /F /TN session-checkpoint /XML");
    create.push(path.to_string_lossy().into_owned());
    Ok(Manager {
        units: vec![(path, task)],
        enable: vec![create, words("schtasks /Run /TN session-checkpoint")],
        disable: vec![words("schtasks /Delete /F /TN session-checkpoint")],
        ask: words("schtasks /Query /TN session-checkpoint"),
    })
}
