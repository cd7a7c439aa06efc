//! The MCP server that clients spawn: a shim that forwards to the daemon.

use std::process::ExitCode;

fn main() -> ExitCode {
    shim::main()
}
