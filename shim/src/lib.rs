//! The MCP server that clients spawn: it forwards standard input and output to the daemon.
//!
//! It is small and dumb on purpose, since every open session has one: it finds the daemon or starts it
//! (`connect`, `start`), says hello, and pumps lines (`relay`). What it understands of them is only what it
//! takes to survive the daemon: the handshake and the requests that are not answered yet are kept
//! (`conversation`), and said again to the next daemon. Where no daemon can be had, it becomes one for this client alone.
//! The same program is what Claude Code runs as a hook (`hook`).

mod connect;
mod conversation;
mod hook;
#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod os;
mod relay;
mod start;

use std::io::Write as _;
use std::process::ExitCode;

use protocol::env::Env;

use connect::{Daemon, Unreachable};
use hook::Hook;

/// Runs the shim until its client hangs up, or what its arguments ask for instead.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if let Some(argument) = arguments.next() {
        return match argument.to_str() {
            Some("--version" | "-V") => {
                print(&format!("session-checkpoint-mcp {}", protocol::VERSION))
            }
            Some("hook") => {
                let hook = arguments.next().as_deref().and_then(Hook::named);
                let env = std::env::vars_os().collect();
                // Whatever happens, a hook succeeds.
                if let Some(said) = hook.and_then(|hook| hook::run(hook, env)) {
                    let _printed = print(&said);
                }
                ExitCode::SUCCESS
            }
            _ => fail(
                "an MCP client starts it without arguments, and speaks to its standard input; see `session-checkpointd --help` for what a person can do",
            ),
        };
    }
    let env: Env = std::env::vars_os().collect();
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("could not start ({error})")),
    };
    let daemon = Daemon::new(&env);
    let outcome = runtime.block_on(async {
        // Nothing is read from the client before there is a daemon: the embedded one can still
        // take over the pipes as they are.
        let stream = daemon.connect().await?;
        relay::run(&daemon, stream).await;
        Ok(())
    });
    // A thread that reads standard input can't be interrupted; it ends with the process.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(unreachable) => go_embedded(&daemon, &unreachable),
    }
}

/// Becomes the daemon of this client alone.
fn go_embedded(daemon: &Daemon, unreachable: &Unreachable) -> ExitCode {
    if let Unreachable::Failed(reason) = unreachable {
        complain(&format!("{reason}; running without a daemon"));
    }
    let program = match &daemon.program {
        Ok(program) => program,
        Err(reason) => return fail(reason),
    };
    os::become_program(program, "--stdio")
        .unwrap_or_else(|error| fail(&format!("could not run `{}` ({error})", program.display())))
}

/// What the fuzz targets reach that nobody else needs.
#[cfg(fuzzing)]
pub mod fuzz {
    /// A hook's input as somebody may have sent it.
    pub fn hook(bytes: &[u8]) {
        crate::hook::try_input(bytes);
    }
}

fn print(text: &str) -> ExitCode {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn complain(message: &str) {
    // Where even this can't be written, the exit code says it.
    let _written = writeln!(
        std::io::stderr().lock(),
        "session-checkpoint-mcp: {message}"
    );
}

fn fail(message: &str) -> ExitCode {
    complain(message);
    ExitCode::FAILURE
}
