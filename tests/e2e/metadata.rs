//! The version and the names stand once, in `Cargo.toml`; whatever else is published agrees.

use std::path::Path;

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
