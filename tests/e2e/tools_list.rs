//! What clients see of the tools: pinned whole, and plain enough for every one of them.

use serde_json::{Value, json};

use crate::support::{TOOLS_LIST, World};

/// The answer as it is now. `UPDATE_GOLDEN=1` writes it for review.
fn listed() -> Value {
    let world = World::new();
    let mut client = world.client(world.home()).start();
    let mut answer = client.request("tools/list", json!({}));
    let list = answer["result"].take();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/e2e/golden/tools-list.json"
        );
        std::fs::write(path, format!("{list:#}\n")).unwrap();
    }
    list
}

#[test]
fn the_answer_is_the_reviewed_one() {
    let reviewed: Value = serde_json::from_str(TOOLS_LIST).unwrap();
    assert_eq!(format!("{:#}", listed()), format!("{reviewed:#}"));
}

#[test]
fn the_tools_have_their_names_hints_titles_and_descriptions() {
    let list = listed();
    let tools = list["tools"].as_array().unwrap();
    let expected = [
        ("save_session_checkpoint", false),
        ("load_session_checkpoint", true),
        ("list_session_checkpoints", true),
    ];
    assert_eq!(tools.len(), expected.len());
    for (tool, (name, reads_only)) in tools.iter().zip(expected) {
        assert_eq!(tool["name"], name);
        assert_eq!(
            tool["annotations"],
            json!({
                "readOnlyHint": reads_only,
                "destructiveHint": false,
                "idempotentHint": reads_only,
                "openWorldHint": false
            })
        );
        assert!(!tool["title"].as_str().unwrap().is_empty());
        let description = tool["description"].as_str().unwrap();
        assert!(
            description.contains("Call it") && description.len() < 4096,
            "{description}"
        );
        // As a plugin's tool the name gets a long prefix, and the API allows 128 characters.
        let plugin = format!("mcp__plugin_session-checkpoint_session-checkpoint__{name}");
        assert!(plugin.len() <= 128 && name.len() <= 24 + 1);
    }
    assert_eq!(tools[1]["_meta"]["anthropic/maxResultSizeChars"], 200_000);
}

#[test]
fn the_schemas_are_plain() {
    let list = listed();
    for tool in list["tools"].as_array().unwrap() {
        for side in ["inputSchema", "outputSchema"] {
            let schema = &tool[side];
            assert_eq!(schema["type"], "object");
            lint(schema, side == "inputSchema", 0);
            let properties = schema["properties"].as_object().unwrap();
            for required in schema["required"].as_array().into_iter().flatten() {
                assert!(properties.contains_key(required.as_str().unwrap()));
            }
        }
    }
}

fn lint(schema: &Value, is_input: bool, depth: usize) {
    assert!(depth <= 5);
    let keys = schema.as_object().unwrap();
    for banned in [
        "$ref",
        "$defs",
        "definitions",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "format",
        "additionalProperties",
    ] {
        assert!(!keys.contains_key(banned), "{banned} in {schema}");
    }
    if depth > 0 {
        assert!(
            schema["description"].is_string(),
            "no description: {schema}"
        );
        assert!(
            schema["type"].is_string() || !is_input && schema.get("type").is_none(),
            "{schema}"
        );
    }
    for property in schema["properties"].as_object().into_iter().flatten() {
        lint(property.1, is_input, depth + 1);
    }
    if let Some(items) = schema.get("items") {
        lint(items, is_input, depth + 1);
    }
}

#[test]
fn the_limits_stand_in_the_schemas() {
    let list = listed();
    let input = &list["tools"][0]["inputSchema"]["properties"];
    for (pointer, limit) in [
        ("/goal/maxLength", 500),
        ("/tasks/maxItems", 30),
        ("/tasks/items/properties/description/maxLength", 500),
        ("/summary/maxLength", 4000),
        ("/nextSteps/maxItems", 20),
        ("/nextSteps/items/maxLength", 500),
        ("/decisions/maxItems", 20),
        ("/decisions/items/maxLength", 1000),
        ("/modifiedFiles/maxItems", 100),
        ("/modifiedFiles/items/properties/note/maxLength", 500),
        ("/recentCommands/maxItems", 50),
        ("/recentCommands/items/properties/command/maxLength", 2000),
        ("/recentCommands/items/properties/note/maxLength", 500),
    ] {
        assert_eq!(input.pointer(pointer), Some(&json!(limit)), "{pointer}");
    }
}

#[test]
fn the_context_that_tools_and_instructions_cost_is_small() {
    let mut list = listed();
    for tool in list["tools"].as_array_mut().unwrap() {
        tool.as_object_mut().unwrap().remove("outputSchema");
    }
    let size = list.to_string().len();
    assert!(
        size <= 4096,
        "tools/list without output schemas takes {size} bytes"
    );

    let world = World::new();
    let opened = world.client(world.home()).spawn().open();
    let instructions = opened["instructions"].as_str().unwrap();
    assert!(instructions.len() <= 1536, "{}", instructions.len());
    for tool in [
        "save_session_checkpoint",
        "load_session_checkpoint",
        "list_session_checkpoints",
    ] {
        assert!(instructions.contains(tool));
    }
}
