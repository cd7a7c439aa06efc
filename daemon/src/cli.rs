//! The command line of `session-checkpointd`.

mod control;
mod doctor;
mod service;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use uuid::Uuid;

pub(crate) use control::stop_at;

use crate::config::Config;
use crate::{RunError, demo, log, os};

/// Keeps checkpoints of coding-agent sessions. MCP clients spawn `session-checkpoint-mcp`, which starts
/// this daemon by itself.
#[derive(Debug, Parser)]
#[command(name = "session-checkpointd", version, arg_required_else_help = true)]
struct Cli {
    /// Serve one MCP client on standard input and output, without a daemon.
    #[arg(long)]
    stdio: bool,
    /// The connection that the client had with a daemon before; given by the shim.
    #[arg(long, hide = true, requires = "stdio")]
    connection: Option<Uuid>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon in the foreground.
    Run {
        /// Let go of the terminal and the session; used by the shim.
        #[arg(long, hide = true)]
        detached: bool,
        /// Leave when no client has been connected for so many seconds.
        #[arg(long, value_name = "SECONDS", default_value_t = 30 * 60)]
        idle_exit: u64,
    },
    /// Say whether the daemon runs, and how it is.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Ask the daemon to finish what is running and leave. The next client starts one.
    Stop,
    /// Check everything between a client and its checkpoints, and say what to do.
    Doctor,
    /// Print the daemon's log.
    Logs,
    /// Have the system's service manager keep the daemon (systemd, launchd, the task scheduler).
    Service {
        #[command(subcommand)]
        action: service::Action,
    },
    /// Play the main job on a small repository in a temporary folder: save, edit, load.
    Demo,
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page.
    #[command(hide = true)]
    Man,
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = Config::from_env();
    let result = match cli.command {
        None if cli.stdio => serve(
            &config,
            Serve::Stdio {
                connection: cli.connection,
            },
        ),
        None => Err("call `session-checkpointd --help`".to_owned()),
        Some(Command::Run {
            detached,
            idle_exit,
        }) => serve(
            &config,
            Serve::Socket {
                detached,
                idle: Duration::from_secs(idle_exit),
            },
        ),
        Some(Command::Status { json }) => control::status(&config, json),
        Some(Command::Stop) => control::stop(&config),
        Some(Command::Doctor) => doctor::examine(&config),
        Some(Command::Logs) => control::logs(&config),
        Some(Command::Service { action }) => service::act(&config, action),
        Some(Command::Demo) => demo::play(),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "session-checkpointd", &mut script);
            print(String::from_utf8_lossy(&script).trim_end())
        }
        Some(Command::Man) => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command())
                .render(&mut page)
                .map_err(|error| format!("could not write ({error})"))
                .and_then(|()| print(String::from_utf8_lossy(&page).trim_end()))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            complain(&message);
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone, Copy)]
enum Serve {
    Socket { detached: bool, idle: Duration },
    Stdio { connection: Option<Uuid> },
}

fn serve(config: &Config, how: Serve) -> Result<(), String> {
    os::survive_file_limit();
    os::make_private();
    if let Serve::Socket { detached: true, .. } = how {
        os::reset_signals();
        os::detach().map_err(|error| format!("could not let go of the terminal ({error})"))?;
    }
    os::raise_file_limit();
    log::start(config, matches!(how, Serve::Stdio { .. }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("could not start ({error})"))?;
    let result = match how {
        Serve::Socket { detached, idle } => runtime.block_on(crate::run(config, detached, idle)),
        Serve::Stdio { connection } => runtime.block_on(crate::embedded(config, connection)),
    };
    // A thread that reads standard input can't be interrupted; it ends with the process.
    runtime.shutdown_background();
    result.map_err(|error: RunError| error.to_string())
}

/// Writes for a person. A closed pipe is not worth a word.
pub(crate) fn print(text: &str) -> Result<(), String> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("could not write ({error})"))
        }
        _ => Ok(()),
    }
}

fn complain(message: &str) {
    // Where even this can't be written, the exit code says it.
    let _written = writeln!(io::stderr().lock(), "session-checkpointd: {message}");
}
