"use strict";
// Puts the native programs of this platform's package in the place of the scripts in bin/: `npx` then starts them
// directly. Whatever goes wrong, the scripts stay and do the same, slower.
const fs = require("node:fs");
const path = require("node:path");

const platform = `session-checkpoint-mcp-${process.platform}-${process.arch}`;
try {
  if (process.platform === "win32") process.exit(0); // there npm starts what is in bin/ by Node in any case
  const from = path.join(path.dirname(require.resolve(`${platform}/package.json`)), "bin");
  // The shim starts the daemon that lies beside it, so both are put in place.
  for (const name of ["session-checkpointd", "session-checkpoint-mcp"]) {
    const target = path.join(__dirname, "bin", name);
    const temporary = `${target}.new`;
    try {
      fs.linkSync(path.join(from, name), temporary);
    } catch {
      fs.copyFileSync(path.join(from, name), temporary);
      fs.chmodSync(temporary, 0o755);
    }
    fs.renameSync(temporary, target);
  }
} catch {
  // Another platform, or a read-only place.
}
