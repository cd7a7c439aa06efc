//! git's own ways of changing a work tree, met by the live picture.

use serde_json::{Value, json};

use super::status::{oracle, records};
use crate::support::{Client, Repository, World, checkpoint};

#[track_caller]
fn as_git_says(client: &mut Client, repo: &Repository) -> Value {
    client.save(json!({"goal": "g"})).ok();
    let file = checkpoint(repo, "s-1");
    assert_eq!(records(&file), oracle(repo));
    file
}

#[test]
fn each_switch_of_branches_and_each_stash_is_seen_at_once() {
    let world = World::new();
    let repo = world.repository();
    for n in 0..500 {
        repo.write(&format!("d{}/f{n}", n % 25), format!("one {n}\n"));
    }
    repo.commit_all("one");
    repo.git(&["switch", "--quiet", "--create", "other"]);
    for n in 0..500 {
        repo.write(&format!("d{}/f{n}", n % 25), format!("other {n}\n"));
    }
    repo.write("only-on-other", "x");
    repo.commit_all("other");
    let mut client = world.client(&repo).session("s-1").start();
    for round in 0..12 {
        let branch = if round % 2 == 0 { "main" } else { "other" };
        repo.git(&["switch", "--quiet", branch]);
        for n in 0..3 {
            repo.write(&format!("d{n}/f{n}"), format!("edited {round}\n"));
        }
        let file = as_git_says(&mut client, &repo);
        assert_eq!(
            (&file["git"]["branch"], &file["git"]["head"]),
            (&json!(branch), &json!(repo.head()))
        );
        if round % 3 == 0 {
            repo.git(&["stash", "--quiet"]);
            as_git_says(&mut client, &repo);
            repo.git(&["stash", "pop", "--quiet"]);
            as_git_says(&mut client, &repo);
        }
        repo.git(&["checkout", "--quiet", "--", "."]);
    }
}

#[test]
fn nobody_else_is_kept_from_gits_locks_and_the_index_is_never_written() {
    let world = World::new();
    let repo = world.repository();
    repo.write("f", "x");
    repo.commit_all("f");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let saving = scope.spawn(|| {
            let mut client = world.client(&repo).session("s-1").start();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                client.save(json!({"goal": "g"})).ok();
            }
        });
        for n in 0..60 {
            repo.write("f", format!("{n}"));
            repo.git(&["commit", "--quiet", "--all", "--message", "n"]);
            repo.write("f", "stashed");
            repo.git(&["stash", "--quiet"]);
            repo.git(&["stash", "drop", "--quiet"]);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        saving.join().unwrap();
    });
}

#[test]
fn a_subdirectory_root_is_live_within_itself_and_minds_the_rules_above_it() {
    let world = World::new();
    let repo = world.repository();
    repo.write("sub/app/a", "x");
    repo.write("sub/app/deep/b", "x");
    repo.write("other/c", "x");
    repo.commit_all("files");
    let root = repo.path("sub/app");
    let mut client = world.client(&root).session("s-1").start();
    let mut recorded = || {
        client.save(json!({"goal": "g"})).ok();
        records(&checkpoint(&root, "s-1"))
            .into_keys()
            .collect::<Vec<_>>()
    };
    assert_eq!(recorded(), Vec::<String>::new());
    repo.write("other/c", "changed");
    repo.write("sub/app/deep/b", "changed");
    repo.write("sub/app/new.log", "x");
    assert_eq!(recorded(), ["deep/b", "new.log"]);
    repo.write(".gitignore", "*.log\n");
    assert_eq!(recorded(), ["deep/b"]);
    repo.write(".git/info/exclude", "*.tmp\n");
    repo.write("sub/app/x.tmp", "x");
    assert_eq!(recorded(), ["deep/b"]);
    std::fs::write(
        world.home().join(".gitconfig"),
        "[core]\n\texcludesFile = ~/mine\n",
    )
    .unwrap();
    std::fs::write(world.home().join("mine"), "*.bak\n").unwrap();
    repo.write("sub/app/x.bak", "x");
    assert_eq!(recorded(), ["deep/b"]);
    std::fs::write(world.home().join("mine"), "").unwrap();
    assert_eq!(recorded(), ["deep/b", "x.bak"]);
    let project = super::live::project(&world);
    assert_eq!(project["state"], "live");
    assert!(project["watches"].as_u64().unwrap() <= 3);
}

#[test]
fn a_finished_operation_and_one_in_progress_are_only_their_files() {
    let world = World::new();
    let repo = world.repository();
    repo.write("f", "base\n");
    repo.commit_all("base");
    repo.git(&["switch", "--quiet", "--create", "topic"]);
    repo.write("f", "topic\n");
    repo.commit_all("topic");
    repo.git(&["switch", "--quiet", "main"]);
    repo.write("f", "main\n");
    repo.commit_all("main");
    let mut client = world.client(&repo).session("s-1").start();
    as_git_says(&mut client, &repo);
    repo.git(&["switch", "--quiet", "topic"]);
    assert!(!repo.try_git(&["rebase", "main"]).0);
    let file = as_git_says(&mut client, &repo);
    assert_eq!(
        (&file["git"]["branch"], &file["modifiedFiles"][0]["status"]),
        (&Value::Null, &json!("U"))
    );
    repo.write("f", "resolved\n");
    repo.git(&["add", "f"]);
    as_git_says(&mut client, &repo);
    repo.git(&["-c", "core.editor=true", "rebase", "--continue"]);
    let file = as_git_says(&mut client, &repo);
    assert_eq!(file["git"]["branch"], "topic");
}

#[test]
fn large_and_growing_files_cost_no_memory_and_get_no_hash_that_never_was() {
    let world = World::new();
    let repo = world.repository();
    std::fs::File::create(repo.path("dump.bin"))
        .unwrap()
        .set_len(3 << 30)
        .unwrap();
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    let daemon = world.daemons()[0];
    let peak = |pid: u32| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        line.split_ascii_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    };
    let before = peak(daemon);
    std::fs::write(repo.path("sixty"), vec![b'x'; 60 << 20]).unwrap();
    let file = as_git_says_but(&mut client, &repo, "dump.bin");
    assert!(file["modifiedFiles"].to_string().contains("sixty"));
    assert!(
        peak(daemon) < before + 32 * 1024,
        "{} KiB more",
        peak(daemon) - before
    );

    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = std::fs::File::options()
                .create(true)
                .append(true)
                .open(repo.path("growing"))
                .unwrap();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                std::io::Write::write_all(&mut log, b"one more line of a log\n").unwrap();
            }
        });
        for _ in 0..5 {
            client.save(json!({"goal": "g"})).ok();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    // Every hash that was given is one of a content that the file had: some number of whole lines.
    let file = checkpoint(&repo, "s-1");
    let records = records(&file);
    if let Some((_, Some(hash))) = records.get("growing") {
        let whole = std::fs::read(repo.path("growing")).unwrap();
        let size = (0..=whole.len() / 23).rev().find(|lines| {
            std::fs::write(repo.path(".git/part"), &whole[..lines * 23]).unwrap();
            &repo.hash(".git/part") == hash
        });
        assert!(size.is_some());
    }
}

/// As git says, but for one file that is too large to be hashed.
fn as_git_says_but(client: &mut Client, repo: &Repository, unhashed: &str) -> Value {
    client.save(json!({"goal": "g"})).ok();
    let file = checkpoint(repo, "s-1");
    let mut found = records(&file);
    assert_eq!(found.remove(unhashed), Some(("??".to_owned(), None)));
    for (path, (letter, hash)) in found {
        assert_eq!((letter.as_str(), hash), ("??", Some(repo.hash(&path))));
    }
    file
}
