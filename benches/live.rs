//! What a call costs in a live project, beside what it is compared to: `cargo bench --bench live`.
//!
//! At each size a repository with 100 modified and 20 untracked files is made, a client saves and loads with one
//! file edited between any two calls, and in the same run `git status -uall` is timed and a raw
//! write + fsync + rename + directory fsync of the same bytes. Figures are medians with the range of their middle
//! half, in milliseconds; only those of one run may be compared. `BENCH_SIZES` names other sizes, `BENCH_ROUNDS` other rounds.
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

use std::time::Instant;

use common::{cpu, fill, median, name, pss, shown, timed, write_raw};
use serde_json::json;
use support::{Repository, World};

fn main() {
    // `cargo test` builds benches and may run them: only `cargo bench` means it.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let sizes = std::env::var("BENCH_SIZES").unwrap_or_else(|_| "1000,10000,100000".to_owned());
    let rounds = std::env::var("BENCH_ROUNDS")
        .ok()
        .and_then(|r| r.parse().ok())
        .unwrap_or(40);
    println!(
        "| files | first save | save | load | raw write | save − raw | git status -uall | watches | daemon PSS MB | idle CPU ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for size in sizes.split(',').filter_map(|size| size.trim().parse().ok()) {
        measure(size, rounds);
    }
}

fn measure(size: usize, rounds: usize) {
    let world = World::new();
    let repo = world.empty_repository_at("repo", &[]);
    fill(&repo, size);
    let mut client = world.client(&repo).session("bench").start();
    client.list(json!({})).ok();

    let begun = Instant::now();
    let saved = client.save(json!({"goal": "g"})).ok();
    let first = begun.elapsed().as_secs_f64() * 1000.0;
    let bytes = usize::try_from(saved["bytes"].as_u64().unwrap()).unwrap();

    let (mut saves, mut loads, mut raw, mut status) = (vec![], vec![], vec![], vec![]);
    for round in 0..rounds {
        edit(&repo, round, size);
        saves.push(timed(|| {
            drop(client.save(json!({"goal": "g", "mode": "merge"})).ok())
        }));
        edit(&repo, round + 1, size);
        loads.push(timed(|| drop(client.load(json!({})).ok())));
        raw.push(timed(|| write_raw(&repo.path(".git/raw"), bytes)));
        if round % 4 == 0 {
            let git = ["--no-optional-locks", "status", "--porcelain", "-uall"];
            status.push(timed(|| drop(repo.git(&git))));
        }
    }
    let daemon = world.daemons()[0];
    let watches = &world.status().unwrap()["watcher"]["watches"];
    let pss = pss(daemon);
    let before = cpu(daemon);
    std::thread::sleep(std::time::Duration::from_secs(10));
    let idle = (cpu(daemon) - before) * 10;
    let over = median(&mut saves.clone()) - median(&mut raw.clone());
    println!(
        "| {size} | {first:.0} | {} | {} | {} | {over:.2} | {} | {watches} | {pss:.1} | {idle} |",
        shown(saves),
        shown(loads),
        shown(raw),
        shown(status)
    );
}

fn edit(repo: &Repository, round: usize, size: usize) {
    repo.write(
        &name((round * 7 % 100) * size / 100),
        format!("edited {round}\n").repeat(50),
    );
}
