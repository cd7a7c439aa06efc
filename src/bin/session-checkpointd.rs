//! The daemon, and the commands for people.

use std::process::ExitCode;

fn main() -> ExitCode {
    daemon::cli::main()
}
