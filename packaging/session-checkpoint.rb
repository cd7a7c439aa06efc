# Homebrew formula; `scripts/formula` puts the source archive's address and checksum in.
class SessionCheckpoint < Formula
  desc "MCP server that keeps checkpoints of coding-agent sessions"
  version "1.0.0"
  url "@URL@"
  sha256 "@SHA256@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args
    (man1/"session-checkpointd.1").write Utils.safe_popen_read(bin/"session-checkpointd", "man")
    generate_completions_from_executable(bin/"session-checkpointd", "completions")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/session-checkpoint-mcp --version")
  end
end
