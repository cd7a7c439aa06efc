//! Every answer of a tool validates against that tool's `outputSchema` as `tools/list` gives it, or is an
//! error without structured content.

use std::collections::HashMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

/// The reviewed answer to `tools/list`.
pub(crate) const TOOLS_LIST: &str = include_str!("../e2e/golden/tools-list.json");

static OUTPUTS: LazyLock<HashMap<String, Validator>> = LazyLock::new(|| {
    let list: Value = serde_json::from_str(TOOLS_LIST).expect("the golden file is JSON");
    list["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .map(|tool| {
            let name = tool["name"].as_str().expect("a name").to_owned();
            let schema = jsonschema::validator_for(&tool["outputSchema"]);
            (name, schema.expect("a valid schema"))
        })
        .collect()
});

/// Panics unless the result is as promised.
#[track_caller]
pub(crate) fn check(tool: &str, result: &Value) {
    let structured = result.get("structuredContent");
    if result["isError"] == true {
        assert!(structured.is_none(), "an error has text alone: {result}");
        return;
    }
    let structured = structured.expect("a successful answer is structured");
    if let Some(schema) = OUTPUTS.get(tool)
        && let Err(error) = schema.validate(structured)
    {
        panic!("{tool}: {error}: {structured}");
    }
    let first = structured.as_object().and_then(|map| map.iter().next());
    let text = &result["content"][0]["text"];
    assert_eq!(
        first.map(|(key, value)| (key.as_str(), value)),
        Some(("text", text))
    );
}
