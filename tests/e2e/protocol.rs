//! Both protocol eras on the same pipe, and lines that are no requests: a right answer or a JSON-RPC error,
//! never a closed pipe.

use serde_json::{Value, json};

use crate::support::{Client, World};

const META: &str = "io.modelcontextprotocol";

fn tools_of(client: &mut Client) -> usize {
    let answer = client.request("tools/list", json!({}));
    answer["result"]["tools"].as_array().expect("tools").len()
}

#[test]
fn initialize_echoes_each_version_of_the_handshake_era() {
    let world = World::new();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = world.client(world.home()).version(version).spawn();
        let opened = client.open();
        assert_eq!(opened["protocolVersion"], version);
        assert_eq!(opened["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
        assert!(opened["capabilities"]["tools"].is_object());
        assert_eq!(tools_of(&mut client), 3);
    }
}

#[test]
fn initialize_with_any_other_version_gets_the_newest_with_a_handshake() {
    let world = World::new();
    for version in [
        json!("1999-01-01"),
        json!("2030-01-01"),
        json!("2026-07-28"),
        json!(5),
        Value::Null,
    ] {
        let mut client = world.client(world.home()).spawn();
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        let answer = client.request("initialize", params);
        assert_eq!(
            answer["result"]["protocolVersion"], "2025-11-25",
            "{version}"
        );
        assert_eq!(tools_of(&mut client), 3);
    }
    let mut client = world.client(world.home()).spawn();
    let answer = client.request("initialize", json!({}));
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
}

#[test]
fn the_stateless_era_needs_no_handshake_and_remembers_nothing() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world
        .client(&repo)
        .version("2026-07-28")
        .session("s-1")
        .start();
    let discovered = client.request("server/discover", json!({}));
    let versions = discovered["result"]["supportedVersions"]
        .as_array()
        .unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{discovered}");
    assert!(discovered["result"]["instructions"].is_string());
    assert_eq!(tools_of(&mut client), 3);
    let saved = client.save(json!({"goal": "g"})).ok();
    assert_eq!(saved["session"], "s-1");

    // Another client's name in one request says nothing of the next.
    let call = |name: &str| {
        json!({
            "name": "load_session_checkpoint", "arguments": {},
            "_meta": {
                (format!("{META}/protocolVersion")): "2026-07-28",
                (format!("{META}/clientInfo")): {"name": name, "version": "1"},
                (format!("{META}/clientCapabilities")): {"roots": {}}
            }
        })
    };
    for (name, found) in [("cursor", false), ("claude-code", true), ("cursor", false)] {
        let id = json!(format!("call-{name}-{found}"));
        let id = if found { id } else { json!(client.pid()) };
        client.send(
            &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call(name)}),
        );
        // It declares roots, but is never asked for them in this era: the next message is the answer.
        let answer = client.next().unwrap();
        assert_eq!(answer["id"], id);
        assert_eq!(
            answer["result"]["structuredContent"]["found"], found,
            "{answer}"
        );
        assert_eq!(answer["result"]["resultType"], "complete");
    }
}

#[test]
fn an_unsupported_version_in_meta_is_an_error_of_its_own() {
    let world = World::new();
    let mut client = world.client(world.home()).spawn();
    let meta = json!({
        (format!("{META}/protocolVersion")): "2031-01-01",
        (format!("{META}/clientInfo")): {"name": "c", "version": "1"},
        (format!("{META}/clientCapabilities")): {}
    });
    let answer = client.request("tools/list", json!({"_meta": meta}));
    let error = &answer["error"];
    assert!(error["data"]["supported"].is_array(), "{answer}");
    assert_eq!(tools_of(&mut client), 3);
}

#[test]
fn ping_is_answered_in_every_state() {
    let world = World::new();
    let mut client = world.client(world.home()).spawn();
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    client.open();
    assert_eq!(client.request("ping", json!({"x": 1}))["result"], json!({}));
    client.send(&json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
    assert_eq!(
        client.next().unwrap(),
        json!({"jsonrpc": "2.0", "id": "p", "result": {}})
    );
}

#[test]
fn requests_before_initialized_and_notifications_before_anything_do_no_harm() {
    let world = World::new();
    let mut client = world.client(world.home()).spawn();
    client.notify("notifications/cancelled");
    client.notify("notifications/initialized");
    client.notify("no/such/notification");
    let answer = client.request("tools/list", json!({}));
    assert!(answer.get("result").is_some() || answer.get("error").is_some());
    client.request(
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}),
    );
    assert_eq!(tools_of(&mut client), 3);
}

#[test]
fn lines_that_are_no_requests_get_an_error_and_the_next_line_works() {
    let world = World::new();
    let mut client = world.client(world.home()).start();
    let cases: Vec<(Vec<u8>, i64, Value)> = vec![
        (b"{".to_vec(), -32700, Value::Null),
        (b"nonsense".to_vec(), -32700, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"\xff\xfe\"}".to_vec(), -32700, json!(9)),
        ("[".repeat(100_000).into_bytes(), -32700, Value::Null),
        (b"[]".to_vec(), -32600, Value::Null),
        (b"[1,2]".to_vec(), -32600, Value::Null),
        (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]".to_vec(), -32600, Value::Null),
        (b"[{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}]".to_vec(), -32600, Value::Null),
        (b"7".to_vec(), -32600, Value::Null),
        (b"{\"jsonrpc\":\"1.0\",\"id\":4,\"method\":\"tools/list\"}".to_vec(), -32600, json!(4)),
        (b"{\"id\":5,\"method\":\"tools/list\"}".to_vec(), -32600, json!(5)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":6}".to_vec(), -32600, json!(6)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"tools/list\"}".to_vec(), -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"tools/list\"}".to_vec(), -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"tools/list\"}".to_vec(), -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"\",\"method\":\"tools/list\"}".to_vec(), -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"no/such\"}".to_vec(), -32601, json!(7)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"tools/call\"}".to_vec(), -32602, json!("x")),
        (b"{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"tools/call\",\"params\":{\"name\":\"nope\"}}".to_vec(), -32602, json!(8)),
    ];
    for (line, code, id) in cases {
        client.write(&line);
        client.write("\n");
        let answer = client.next().unwrap();
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(code), &id),
            "{shown}: {answer}"
        );
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
    }
    client.write("\n  \n");
    client.send(&json!({"jsonrpc": "2.0", "id": 99, "result": {}}));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": 5}));
    assert_eq!(tools_of(&mut client), 3);
}

#[test]
fn arguments_that_are_missing_or_null_are_none() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).start();
    for params in [
        json!({"name": "list_session_checkpoints"}),
        json!({"name": "list_session_checkpoints", "arguments": null}),
        json!({"name": "list_session_checkpoints", "arguments": {}}),
        json!({"name": "list_session_checkpoints", "arguments": {"limit": null, "session": "", "projectRoot": "  "}}),
    ] {
        let answer = client.request("tools/call", params);
        assert_eq!(
            answer["result"]["structuredContent"]["total"], 0,
            "{answer}"
        );
        assert_eq!(answer["result"]["structuredContent"]["warnings"], json!([]));
    }
    for arguments in [json!([]), json!("x"), json!(7)] {
        let answer = client.request(
            "tools/call",
            json!({"name": "list_session_checkpoints", "arguments": arguments}),
        );
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
}

#[test]
fn ids_may_be_strings_and_answers_carry_them_as_they_were() {
    let world = World::new();
    let mut client = world.client(world.home()).start();
    for id in [
        json!("a\"b"),
        json!(0),
        json!(-7),
        json!(9_007_199_254_740_993_i64),
    ] {
        client.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"}));
        assert_eq!(client.answer_to(&id)["id"], id);
    }
}

#[test]
fn a_second_request_under_an_open_id_is_an_error_and_the_first_is_answered() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "save_session_checkpoint", "arguments": {"goal": "g"}}});
    client.write(format!("{call}\n{call}\n"));
    let answers = [client.next().unwrap(), client.next().unwrap()];
    let error = answers
        .iter()
        .find(|answer| answer.get("error").is_some())
        .unwrap();
    assert_eq!(
        (&error["id"], &error["error"]["code"]),
        (&Value::Null, &json!(-32600))
    );
    let result = answers
        .iter()
        .find(|answer| answer.get("result").is_some())
        .unwrap();
    assert_eq!(result["id"], 5);
}

#[test]
fn a_clients_calls_are_done_in_order_and_each_answered_once() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    let ids: Vec<Value> = (0..20)
        .flat_map(|n| {
            [
                client.begin_call("save_session_checkpoint", json!({"goal": format!("g{n}")})),
                client.begin_call("load_session_checkpoint", json!({"format": "full"})),
            ]
        })
        .collect();
    let answers: Vec<Value> = ids.iter().map(|_| client.next().unwrap()).collect();
    for (n, pair) in ids.chunks(2).enumerate() {
        let loaded = answers
            .iter()
            .filter(|answer| answer["id"] == pair[1])
            .collect::<Vec<_>>();
        assert_eq!(loaded.len(), 1);
        let goal = &loaded[0]["result"]["structuredContent"]["checkpoint"]["goal"]["primary"];
        assert_eq!(goal, &json!(format!("g{n}")));
    }
}

#[test]
fn a_cancelled_call_leaves_a_whole_checkpoint_or_none() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    for n in 0..10 {
        let id = client.begin_call("save_session_checkpoint", json!({"goal": format!("g{n}")}));
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    }
    let loaded = client.load(json!({})).ok();
    assert!(loaded["found"] == false || loaded["text"].as_str().unwrap().contains("## Goal\ng"));
}

#[test]
fn text_survives_any_chunking() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    let goal = "é 漢 𝄞 \u{2028}\u{85} end";
    let call = |id: u32| {
        let escaped = "\\ud834\\udd1e";
        let text = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "save_session_checkpoint", "arguments": {"goal": goal, "summary": "ESC"}}}).to_string();
        text.replace("ESC", escaped)
    };
    for (n, size) in [1, 3, 4095, 65_537].into_iter().enumerate() {
        let id = 1000 + n as u32;
        let line = format!("{}\r\n", call(id));
        for chunk in line.as_bytes().chunks(size) {
            client.write(chunk);
        }
        client.answer_to(&json!(id));
        let loaded = client.load(json!({"format": "full"})).ok();
        assert_eq!(loaded["checkpoint"]["goal"]["primary"], goal);
        assert_eq!(loaded["checkpoint"]["summary"], "𝄞");
    }
    // A string that was cut inside an emoji, as JavaScript writes it.
    let cut = call(3000).replace(" end", " \\ud83d");
    client.write(format!("{cut}\n"));
    assert!(client.answer_to(&json!(3000)).get("result").is_some());
    let loaded = client.load(json!({"format": "full"})).ok();
    assert_eq!(
        loaded["checkpoint"]["goal"]["primary"],
        goal.replace(" end", " \u{fffd}")
    );
    // A last line without its line break counts.
    client.write(call(2000));
    client.hang_up();
    assert!(client.answer_to(&json!(2000)).get("result").is_some());
}

#[test]
fn lines_of_megabytes_are_read_and_endless_ones_refused() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    let saved = client
        .save(json!({"goal": "g", "summary": "x".repeat(5_000_000)}))
        .ok();
    assert!(saved["warnings"][0].as_str().unwrap().contains("5000000"));
    let id = client.begin_call(
        "save_session_checkpoint",
        json!({"goal": "x".repeat(17_000_000)}),
    );
    let answer = client.answer_to(&id);
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("16 MiB"),
        "{answer}"
    );
    assert_eq!(tools_of(&mut client), 3);
}

#[test]
fn standard_output_is_the_protocols_alone() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world
        .client(&repo)
        .session("s-1")
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "full")
        .env("SESSION_CHECKPOINT_LOG", "trace")
        .start();
    let marker = "a-goal-that-no-log-may-hold";
    client.save(json!({"goal": marker})).ok();
    client.load(json!({})).ok();
    client.request("no/such", json!({}));
    client.hang_up();
    while let Some(message) = client.next() {
        assert_eq!(message["jsonrpc"], "2.0");
    }
    let log = if crate::EMBEDDED {
        client.complaints()
    } else {
        world.log()
    };
    assert!(log.contains("answered in"), "{log}");
    assert!(!log.contains(marker));
}
