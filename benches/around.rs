//! What a session costs besides its calls, beside what it is compared to: `cargo bench --bench around`.
//!
//! Start, hooks, memory, idling, 200 clients at once, and what is put into a model's context. `node` and `/bin/true` are
//! timed in the same run where they are there; `BENCH_STANDIN`, a command, is another MCP server to start in the same
//! way. Times are milliseconds, medians with the range of their middle half; only those of one run may be compared.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its table"
)]

#[path = "common/mod.rs"]
mod common;
#[path = "../tests/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the harness serves the tests as well"
)]
mod support;

/// What is measured is the daemon.
pub(crate) const EMBEDDED: bool = false;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{cpu, fill, median, pss, shown, timed, write_raw};
use serde_json::{Value, json};
use support::{ClientBuilder, SHIM, World};

fn main() {
    // `cargo test` builds benches and may run them: only `cargo bench` means it.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("| what | ours | compared to |\n|---|---|---|");
    starts();
    hooks();
    context();
    memory_and_idling();
    at_once();
    redactor();
}

fn row(what: &str, ours: &str, compared: &str) {
    println!("| {what} | {ours} | {compared} |");
}

fn many(rounds: usize, mut work: impl FnMut()) -> Vec<f64> {
    (0..rounds).map(|_| timed(&mut work)).collect()
}

fn ratio(ours: &[f64], theirs: &[f64]) -> String {
    let ratio = median(&mut theirs.to_vec()) / median(&mut ours.to_vec());
    format!("{ratio:.1}×")
}

/// Runs a program to its end, if it is there.
fn program(name: &str, arguments: &[&str]) -> Option<Vec<f64>> {
    let run = || {
        Command::new(name)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
    };
    run().ok()?;
    Some(many(40, || drop(run())))
}

fn starts() {
    let world = World::new();
    let repo = world.repository();
    let start = || drop(world.client(&repo).session("bench").start());
    let keep = world.client(&repo).session("keep").start();
    let ours = many(60, start);
    let truth = program("/bin/true", &[]).unwrap_or_default();
    let mut compared = format!("/bin/true {}", shown(truth));
    if let Some(node) = program("node", &["-e", ""]) {
        compared += &format!(
            "; node -e '' {} ({})",
            shown(node.clone()),
            ratio(&ours, &node)
        );
    }
    if let Ok(standin) = std::env::var("BENCH_STANDIN") {
        let theirs = many(15, || {
            let mut command = world.command("sh");
            command
                .args(["-c", &format!("exec {standin}")])
                .current_dir(repo.root());
            drop(ClientBuilder::new(command).start());
        });
        compared += &format!(
            "; stand-in {} ({})",
            shown(theirs.clone()),
            ratio(&ours, &theirs)
        );
    }
    row(
        "spawn → initialize answered, daemon up",
        &shown(ours),
        &compared,
    );
    drop(keep);
    let cold = (0..15)
        .map(|_| {
            world.kill_daemons();
            timed(start)
        })
        .collect();
    row("the same, daemon not up", &shown(cold), "");
}

fn hooks() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s").start();
    client.save(json!({"goal": "g"})).ok();
    let run = |name: &str, input: &Value| {
        let mut child = world
            .command(SHIM)
            .args(["hook", name])
            .env("CLAUDE_PID", std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.to_string().as_bytes()).unwrap();
        drop(stdin);
        child.wait().unwrap();
    };
    let node = program("node", &["-e", ""]);
    let start = json!({"session_id": "n", "source": "startup", "cwd": repo.root()});
    for (name, input) in [
        ("session-start", start),
        ("guard", json!({"agent_id": "a"})),
    ] {
        let ours = many(60, || run(name, &input));
        let compared = node.as_ref().map_or(String::new(), |node| {
            format!(
                "node -e '' {} ({})",
                shown(node.clone()),
                ratio(&ours, node)
            )
        });
        row(&format!("hook {name}"), &shown(ours), &compared);
    }
}

fn context() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s").spawn();
    let opened = client.open();
    let mut listed = client.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array_mut().unwrap();
    for tool in tools.iter_mut() {
        tool.as_object_mut().unwrap().remove("outputSchema");
    }
    let tools = Value::from(tools.clone()).to_string().len();
    row(
        "tools/list without output schemas, bytes",
        &tools.to_string(),
        "goal 4096",
    );
    let instructions = opened["instructions"].as_str().unwrap().len();
    row(
        "instructions, bytes",
        &instructions.to_string(),
        "goal 1536",
    );
}

fn memory_and_idling() {
    let world = World::new();
    let mut clients = Vec::new();
    for n in 0..10 {
        let repo = world.empty_repository_at(&format!("r{n}"), &[]);
        fill(&repo, 1000);
        let mut client = world.client(&repo).session("s").start();
        client.save(json!({"goal": "g"})).ok();
        clients.push(client);
    }
    let daemon = world.daemons()[0];
    let shim = clients.iter().map(|client| pss(client.pid())).sum::<f64>() / 10.0;
    row("shim, MB PSS, ten of them", &format!("{shim:.2}"), "goal 3");
    row(
        "daemon with ten live projects, MB PSS",
        &format!("{:.1}", pss(daemon)),
        "",
    );
    let before = cpu(daemon);
    std::thread::sleep(Duration::from_secs(60));
    let spent = (cpu(daemon) - before) * 10;
    row(
        "its CPU in 60 s of idling, ms",
        &spent.to_string(),
        "goal under 60",
    );
    drop(clients);
    let lone = World::new();
    let repo = lone.repository();
    let mut client = lone.client(&repo).session("s").start();
    client.list(json!({})).ok();
    row(
        "daemon with nothing to do, MB PSS",
        &format!("{:.1}", pss(lone.daemons()[0])),
        "goal 10",
    );
}

fn at_once() {
    const CLIENTS: usize = 200;
    let world = World::new();
    let repo = world.repository();
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|n| world.client(&repo).session(&format!("s-{n}")).start())
        .collect();
    clients[0].save(json!({"goal": "g"})).ok();
    let raw = many(20, || write_raw(&repo.path(".git/raw"), 2000));
    let begun = Instant::now();
    let ids: Vec<Value> = clients
        .iter_mut()
        .map(|client| client.begin_call("save_session_checkpoint", json!({"goal": "at once"})))
        .collect();
    let times: Vec<f64> = std::thread::scope(|scope| {
        let waiting: Vec<_> = clients
            .iter_mut()
            .zip(&ids)
            .map(|(client, id)| {
                scope.spawn(move || {
                    client.end_call(id).ok();
                    begun.elapsed().as_secs_f64() * 1e3
                })
            })
            .collect();
        waiting.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mut times = times;
    times.sort_by(f64::total_cmp);
    let there = (0..CLIENTS)
        .filter(|n| support::checkpoint(&repo, &format!("s-{n}"))["goal"]["primary"] == "at once")
        .count();
    let bound = 200.0 * median(&mut raw.clone());
    row(
        "200 clients save at once, p50 / p99",
        &format!(
            "{:.0} / {:.0}; {there} of 200 there",
            times[100], times[198]
        ),
        &format!("200 raw saves {bound:.0}"),
    );
}

/// 64 KiB of what a redactor may dread; the slowest counts.
fn redactor() {
    use daemon::checkpoint::redact::Redactor;
    let units = [
        "password:",
        "--token ",
        "A_KEY=\"",
        "密码：",
        "https://a:b@",
        "curl -u a:",
        "eyJ",
        "mysql -p",
        "-----BEGIN PRIVATE KEY-----\n",
    ];
    let texts: Vec<String> = units
        .iter()
        .map(|unit| unit.repeat(65536 / unit.len()))
        .collect();
    let times: Vec<f64> = texts
        .iter()
        .map(|text| median(&mut many(3, || drop(Redactor::default().text(text)))))
        .collect();
    let slowest = times.iter().copied().fold(0.0, f64::max);
    row(
        "redacting 64 KiB of the worst input",
        &format!("{slowest:.1}"),
        "",
    );
}
