//! The version and the names stand once, in `Cargo.toml`; whatever else is published agrees.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn json(name: &str) -> Value {
    serde_json::from_str(&file(name)).unwrap()
}

#[test]
fn the_plugin_and_its_marketplace_agree_with_the_package() {
    let plugin = json("plugin/.claude-plugin/plugin.json");
    assert_eq!(plugin["name"], "session-checkpoint");
    assert_eq!(plugin["version"], VERSION);
    let marketplace = json(".claude-plugin/marketplace.json");
    let entry = &marketplace["plugins"][0];
    for field in ["name", "version", "description", "license"] {
        assert_eq!(entry[field], plugin[field], "{field}");
    }
    let servers = json("plugin/.mcp.json");
    let names: Vec<&String> = servers["mcpServers"].as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        ["session-checkpoint"],
        "permission lists depend on it"
    );
}

#[test]
fn the_version_has_a_chapter_in_the_changelog() {
    assert!(file("CHANGELOG.md").contains(&format!("## {VERSION}")));
}

#[test]
fn what_is_published_elsewhere_agrees_with_the_package() {
    let server = json("server.json");
    assert_eq!(server["version"], VERSION);
    assert_eq!(server["packages"][0]["version"], VERSION);
    let npm = json("npm/session-checkpoint-mcp/package.json");
    assert_eq!(npm["version"], VERSION);
    assert_eq!(npm["name"], server["packages"][0]["identifier"]);
    // The registry takes this for the proof that both are of one owner.
    assert_eq!(npm["mcpName"], server["name"]);
    let platforms = npm["optionalDependencies"].as_object().unwrap();
    let workflow = file(".github/workflows/release.yml");
    for (name, version) in platforms {
        assert_eq!(version, VERSION, "{name}");
        let platform = name.strip_prefix("session-checkpoint-mcp-").unwrap();
        assert!(
            workflow.contains(&format!("npm: {platform} ")),
            "{platform} is built"
        );
    }
    assert!(file("packaging/session-checkpoint.rb").contains(&format!("version \"{VERSION}\"")));
    assert!(file("packaging/install.sh").contains(&format!("VERSION:-{VERSION}")));
    let manifest = file("Cargo.toml");
    assert_eq!(
        manifest
            .matches(&format!("version = \"{VERSION}\""))
            .count(),
        1
    );
    // The crates that are published one by one need each other in this version.
    assert_eq!(
        manifest
            .matches(&format!("version = \"={VERSION}\""))
            .count(),
        3
    );
    // cargo-deb takes the version from there.
    let deb = manifest.split("[package.metadata.deb]").nth(1).unwrap();
    assert!(!deb.contains("version ="));
}

#[test]
fn a_tag_must_be_the_version() {
    let check = |tag: &str| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/check-tag");
        Command::new(script)
            .arg(tag)
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(check(&format!("v{VERSION}")));
    assert!(!check(VERSION));
    assert!(!check("v0.0.1"));
}

#[test]
fn every_step_of_the_release_is_a_script_that_is_there() {
    let workflow = file(".github/workflows/release.yml");
    for word in workflow.split_whitespace() {
        if let Some(script) = word.strip_prefix("scripts/") {
            file(&format!("scripts/{script}"));
        }
    }
}
