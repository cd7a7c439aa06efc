//! The live picture is at every moment what git would say, without the tree being walked at each call.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::status::{Listed, oracle, oracle_and_sources, records};
use crate::support::{Client, Repository, World, checkpoint, wait_until};

/// A small random number generator, so that a failing run can be played again.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Lines that no other call gives, so that nothing is taken for a rename of something else.
    fn content(&mut self) -> String {
        let lines = 3 + self.below(150);
        (0..lines).map(|_| format!("{:x}\n", self.next())).collect()
    }
}

const DIRECTORIES: [&str; 10] = [
    "",
    "a",
    "a/b",
    "a/b/c",
    "d",
    "d/e",
    "ignored",
    "ignored/in",
    "mixed",
    "nested",
];
const FILES: [&str; 7] = ["f", "g", "h.log", "x y", ".hidden", "keep.log", "ünï"];
const PATTERNS: [&str; 7] = [
    "*.log",
    "!keep.log",
    "ignored/",
    "mixed/*",
    "!mixed/f",
    "/d/e",
    "nested/",
];

struct Player<'a> {
    repo: &'a Repository,
    dice: Dice,
}

impl Player<'_> {
    fn file(&mut self) -> String {
        let directory = *self.dice.one_of(&DIRECTORIES);
        let file = *self.dice.one_of(&FILES);
        if directory.is_empty() {
            file.to_owned()
        } else {
            format!("{directory}/{file}")
        }
    }

    fn path(&mut self) -> std::path::PathBuf {
        let file = self.file();
        self.repo.path(&file)
    }

    fn directory(&mut self) -> std::path::PathBuf {
        let name = DIRECTORIES[1 + self.dice.below(DIRECTORIES.len() - 1)];
        self.repo.path(name)
    }

    /// One thing that may happen in a work tree; what can't happen now doesn't.
    fn play(&mut self) -> String {
        let what = self.dice.below(100);
        let path = self.path();
        let other = self.path();
        let directory = self.directory();
        let content = self.dice.content();
        let shown = |path: &Path| {
            path.strip_prefix(self.repo.root())
                .unwrap()
                .display()
                .to_string()
        };
        let git = |arguments: &[&str]| drop(self.repo.try_git(arguments));
        let file = path.to_str().unwrap().to_owned();
        match what {
            0..25 => {
                let made = std::fs::create_dir_all(path.parent().unwrap());
                let written = made.and_then(|()| std::fs::write(&path, &content));
                format!("write {}: {written:?}", shown(&path))
            }
            25..31 => {
                // The same size and the same time, in place.
                let Ok(old) = std::fs::read(&path) else {
                    return "nothing".to_owned();
                };
                let Ok(time) = path.metadata().and_then(|m| m.modified()) else {
                    return "nothing".to_owned();
                };
                let new: Vec<u8> = old
                    .iter()
                    .map(|b| {
                        if b.is_ascii_digit() {
                            b'0' + (b + 1) % 10
                        } else {
                            *b
                        }
                    })
                    .collect();
                drop(std::fs::write(&path, new));
                drop(
                    std::fs::File::options()
                        .write(true)
                        .open(&path)
                        .and_then(|f| f.set_modified(time)),
                );
                format!("rewrite {} with its old time", shown(&path))
            }
            31..38 => {
                drop(std::fs::remove_file(&path));
                format!("remove {}", shown(&path))
            }
            38..43 => {
                drop(std::fs::rename(&path, &other));
                format!("rename {} {}", shown(&path), shown(&other))
            }
            43..47 => {
                let target = self
                    .repo
                    .path(["a", "d", "ignored", "moved", "mixed/m"][self.dice.below(5)]);
                drop(std::fs::rename(&directory, &target));
                format!("rename directory {} {}", shown(&directory), shown(&target))
            }
            47..49 => {
                drop(std::fs::remove_dir_all(&directory));
                format!("remove directory {}", shown(&directory))
            }
            49..52 => {
                drop(std::fs::remove_file(&path));
                drop(symlink("f", &path));
                format!("link {}", shown(&path))
            }
            52..54 => {
                // A file where a directory was, or the other way round.
                if directory.is_dir() {
                    drop(std::fs::remove_dir_all(&directory));
                    drop(std::fs::write(&directory, &content));
                } else {
                    drop(std::fs::remove_file(&directory));
                    drop(std::fs::create_dir_all(&directory));
                    drop(std::fs::write(directory.join("f"), &content));
                }
                format!("turn {}", shown(&directory))
            }
            54..57 => {
                let mode = if self.dice.below(2) == 0 {
                    0o644
                } else {
                    0o755
                };
                drop(std::fs::set_permissions(
                    &path,
                    std::fs::Permissions::from_mode(mode),
                ));
                format!("chmod {mode:o} {}", shown(&path))
            }
            57..61 => {
                let rules = self
                    .repo
                    .path([".gitignore", "a/.gitignore", ".git/info/exclude"][self.dice.below(3)]);
                let patterns: String = (0..self.dice.below(4))
                    .map(|_| format!("{}\n", self.dice.one_of(&PATTERNS)))
                    .collect();
                drop(std::fs::write(&rules, &patterns));
                format!("ignore in {}: {patterns:?}", shown(&rules))
            }
            61..63 => {
                let nested = self.repo.path("nested");
                if nested.join(".git").exists() {
                    drop(std::fs::remove_dir_all(nested.join(".git")));
                } else {
                    git(&["init", "--quiet", nested.to_str().unwrap()]);
                }
                "toggle a nested repository".to_owned()
            }
            63..71 => {
                git(&["add", "--", &file]);
                format!("git add {}", shown(&path))
            }
            71..74 => {
                git(&["add", "--all"]);
                "git add --all".to_owned()
            }
            74..76 => {
                git(&["add", "--force", "--", &file]);
                format!("git add --force {}", shown(&path))
            }
            76..82 => {
                git(&["commit", "--quiet", "--message", "x"]);
                "git commit".to_owned()
            }
            82..84 => {
                git(&["rm", "--quiet", "--cached", "--", &file]);
                format!("git rm --cached {}", shown(&path))
            }
            84..86 => {
                git(&["mv", "--", &file, other.to_str().unwrap()]);
                format!("git mv {} {}", shown(&path), shown(&other))
            }
            86..90 => {
                let branch = ["one", "two", "three"][self.dice.below(3)];
                git(&["switch", "--quiet", "--force-create", branch]);
                format!("git switch -C {branch}")
            }
            90..93 => {
                let branch = ["one", "two", "three", "main"][self.dice.below(4)];
                git(&["checkout", "--quiet", "--force", branch]);
                format!("git checkout --force {branch}")
            }
            93..95 => {
                let branch = ["one", "two", "three", "main"][self.dice.below(4)];
                git(&["merge", "--quiet", branch]);
                format!("git merge {branch}")
            }
            95..97 => {
                git(&["stash", "--quiet", "--include-untracked"]);
                "git stash -u".to_owned()
            }
            97..98 => {
                git(&["stash", "pop", "--quiet"]);
                "git stash pop".to_owned()
            }
            98..99 => {
                git(&["reset", "--quiet", "--hard", "HEAD~1"]);
                "git reset --hard HEAD~1".to_owned()
            }
            _ => {
                git(&["reset", "--quiet"]);
                "git reset".to_owned()
            }
        }
    }
}

/// Where content changed as well, git and gix may call a rename differently.
fn renames_as_additions(listed: Listed) -> Listed {
    listed
        .into_iter()
        .map(|(path, (letter, hash))| {
            let letter = if letter == "R" {
                "A".to_owned()
            } else {
                letter
            };
            (path, (letter, hash))
        })
        .collect()
}

fn recorded(client: &mut Client, root: &Path) -> (Listed, Value) {
    let saved = client.save(json!({"goal": "g"})).ok();
    (
        renames_as_additions(records(&checkpoint(root, "s-1"))),
        saved["warnings"].clone(),
    )
}

/// Steps that are played; set `LIVE_STEPS` for more, and `LIVE_SEED` to play a run again.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

#[test]
fn at_every_step_the_picture_is_what_git_says() {
    let world = World::new();
    let repo = world.repository();
    for (n, directory) in DIRECTORIES.iter().enumerate().take(8) {
        repo.write(&format!("{directory}/f"), format!("{n}\n").repeat(5));
    }
    repo.git(&["add", "--all", "--force"]);
    repo.commit("files");
    repo.git(&["config", "user.name", "Test"]);
    repo.git(&["config", "user.email", "test@localhost"]);
    let seed = setting("LIVE_SEED", 0x9e37_79b9_7f4a_7c15);
    let mut player = Player {
        repo: &repo,
        dice: Dice(seed),
    };
    let mut client = world.client(&repo).session("s-1").start();
    let mut history = Vec::new();
    for step in 0..setting("LIVE_STEPS", 300) {
        for _ in 0..=player.dice.below(3) {
            history.push(player.play());
        }
        let (mut found, warnings) = recorded(&mut client, repo.root());
        let (expected, sources) = oracle_and_sources(&repo);
        let expected = renames_as_additions(expected);
        // What git takes for renamed and gix for deleted and added; in a conflict git does so without saying it.
        let in_conflict = expected.values().any(|(letter, _)| letter == "U");
        found.retain(|path, (letter, _)| {
            expected.contains_key(path) || letter != "D" || !(in_conflict || sources.contains(path))
        });
        let recent = &history[history.len().saturating_sub(12)..];
        assert_eq!(
            found, expected,
            "seed {seed}, step {step}, after {recent:#?}, {warnings}"
        );
    }
    assert_eq!(project(&world)["state"], "live");
}

#[test]
fn every_one_of_a_thousand_edits_is_seen_by_the_load_right_behind_it() {
    let world = World::new();
    let repo = world.repository();
    for n in 0..10 {
        repo.write(&format!("d{n}/f"), "one\n");
    }
    repo.commit_all("files");
    for n in 0..10 {
        repo.write(&format!("d{n}/f"), "two\n");
    }
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    for n in 0..1000 {
        let name = format!("d{}/f", n % 10);
        let other = if n % 20 < 10 { "six\n" } else { "two\n" };
        repo.write(&name, other);
        let changed = client.load(json!({})).ok()["drift"]["changedSince"].take();
        let is_named = changed.as_array().unwrap().contains(&json!(name));
        assert_eq!(is_named, other == "six\n", "edit {n} of {name}: {changed}");
    }
    assert_eq!(project(&world)["state"], "live");
}

/// The project's status, once nobody is looking at it.
pub(super) fn project(world: &World) -> Value {
    wait_until("the project is quiet", || {
        let project = world.status()?["projects"][0].take();
        (project["state"] != "scanning").then_some(project)
    })
}

#[test]
fn ignored_directories_are_not_watched_until_they_are_not_ignored() {
    let world = World::new();
    let repo = world.repository();
    repo.write(".gitignore", "node_modules/\ntarget/\n");
    for n in 0..300 {
        std::fs::create_dir_all(repo.path(&format!("node_modules/m{n}/lib"))).unwrap();
    }
    for n in 0..10 {
        repo.write(&format!("src/m{n}/f"), "x");
    }
    repo.write("node_modules/m1/x", "x");
    repo.commit_all("files");
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    let watches = project(&world)["watches"].as_u64().unwrap();
    assert!((12..=14).contains(&watches), "{watches}");
    repo.write(".gitignore", "target/\n");
    client.save(json!({"goal": "g"})).ok();
    assert!(project(&world)["watches"].as_u64().unwrap() > 600);
    assert!(records(&checkpoint(&repo, "s-1")).contains_key("node_modules/m1/x"));
    repo.write(".gitignore", "node_modules/\ntarget/\n");
    client.save(json!({"goal": "g"})).ok();
    assert_eq!(project(&world)["watches"], watches);
}

#[test]
fn our_own_files_are_no_reason_to_look_again() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    let before = world.status().unwrap()["watcher"]["rescans"].clone();
    for _ in 0..20 {
        client.save(json!({"goal": "g"})).ok();
    }
    assert_eq!(world.status().unwrap()["watcher"]["rescans"], before);
    assert_eq!(records(&checkpoint(&repo, "s-1")), Listed::new());
}

#[test]
fn what_is_made_deep_and_in_one_go_is_all_found() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    for n in 0..50 {
        repo.write(&format!("n{n}/a/b/c/d/e/f/g/file"), format!("x{n}"));
    }
    let (found, _) = recorded(&mut client, repo.root());
    assert_eq!(found.len(), 50);
    repo.write("n7/a/b/c/d/e/f/g/file", "changed");
    let (found, _) = recorded(&mut client, repo.root());
    assert_eq!(found, oracle(&repo));
}

#[test]
fn what_lies_behind_a_link_in_place_of_a_directory_is_not_the_tracked_file() {
    let world = World::new();
    let repo = world.repository();
    let lines = |n: usize| "line\n".repeat(n);
    repo.write("d/f", lines(400));
    repo.write("d/sub/g", lines(500));
    repo.write("e/f", lines(600));
    repo.write("e/sub/g", lines(700));
    repo.commit_all("files");
    repo.write("d/f", lines(800));
    repo.write("d/sub/g", lines(900));
    let mut client = world.client(&repo).session("s-1").start();
    let (found, _) = recorded(&mut client, repo.root());
    assert_eq!(found, oracle(&repo));
    std::fs::remove_dir_all(repo.path("d")).unwrap();
    symlink("e", repo.path("d")).unwrap();
    for n in 0..3 {
        let (found, _) = recorded(&mut client, repo.root());
        assert_eq!(found, oracle(&repo));
        repo.write("e/f", lines(1000 + n));
        repo.write("e/sub/g", lines(1100 + n));
    }
    std::fs::remove_file(repo.path("d")).unwrap();
    repo.write("d/f", lines(10));
    let (found, _) = recorded(&mut client, repo.root());
    assert_eq!(found, oracle(&repo));
}

#[test]
fn a_root_that_was_moved_and_made_again_is_another_project() {
    let world = World::new();
    let repo = world.repository_at("p");
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    let moved = world.path().join("q");
    std::fs::rename(repo.root(), &moved).unwrap();
    std::fs::create_dir(repo.root()).unwrap();
    repo.git(&["init", "--quiet", "--initial-branch=main"]);
    std::fs::write(moved.join("ghost"), "x").unwrap();
    let (found, _) = recorded(&mut client, repo.root());
    assert_eq!(found, Listed::new());
    let mut other = world.client(&moved).session("s-1").start();
    let (found, _) = recorded(&mut other, &moved);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["ghost"]);
}

#[test]
fn a_flood_of_changes_is_looked_at_as_a_whole() {
    let world = World::new();
    let repo = world.repository();
    for n in 0..200 {
        repo.write(&format!("d{}/f{n}", n % 20), format!("{n}\n"));
    }
    repo.commit_all("files");
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    let daemon = world.daemons()[0].to_string();
    let signal = |name: &str| {
        let sent = std::process::Command::new("kill")
            .args([name, &daemon])
            .status();
        assert!(sent.unwrap().success());
    };
    // More than the kernel's queue holds, while the daemon can't read it.
    signal("-STOP");
    for round in 0..120 {
        for n in 0..200 {
            repo.write(&format!("d{}/t{round}-{n}", n % 20), "x");
            repo.remove(&format!("d{}/t{round}-{n}", n % 20));
        }
    }
    for n in 0..17 {
        repo.write(&format!("d{}/f{n}", n % 20), "modified\n");
    }
    signal("-CONT");
    let (found, _) = recorded(&mut client, repo.root());
    assert_eq!(found.len(), 17);
    assert_eq!(found, oracle(&repo));
    wait_until("the doubt is counted", || {
        (world.status()?["watcher"]["rescans"].as_u64()? > 0).then_some(())
    });
}

#[test]
fn where_watches_run_out_the_tree_is_examined_at_each_call() {
    let world = World::new();
    let repo = world.repository();
    for n in 0..60 {
        repo.write(&format!("d{n}/f"), "x");
    }
    repo.commit_all("files");
    let mut command = world.command("unshare");
    let limited = "echo 20 > /proc/sys/user/max_inotify_watches || exit 9; exec \"$0\"";
    command
        .args(["-Ur", "sh", "-c", limited, crate::support::SHIM])
        .current_dir(&repo);
    let mut client = crate::support::ClientBuilder::new(command)
        .session("s-1")
        .start();
    client.save(json!({"goal": "g"})).ok();
    for n in 0..10 {
        repo.write("d59/f", format!("{n}"));
        let (found, _) = recorded(&mut client, repo.root());
        assert_eq!(found["d59/f"].1, Some(repo.hash("d59/f")));
    }
    let project = project(&world);
    assert_eq!(project["state"], "examined");
    assert!(
        project["reason"].as_str().unwrap().contains("watches"),
        "{project}"
    );
    assert!(
        world.status().unwrap()["watcher"]["watches"]
            .as_u64()
            .unwrap()
            <= 20
    );
}

#[test]
fn a_file_system_that_tells_of_nothing_is_examined_at_each_call() {
    let world = World::new();
    let repo = world.repository();
    repo.write("f", "one");
    repo.commit_all("f");
    let [upper, work, merged] = ["upper", "work", "merged"].map(|name| world.directory(name));
    let mut command = world.command("unshare");
    let setup = format!(
        "mount -t overlay overlay -o lowerdir={},upperdir={},workdir={} {merged} || exit 9; cd {merged}; echo two > f; exec {}",
        repo.root().display(),
        upper.display(),
        work.display(),
        crate::support::SHIM,
        merged = merged.display()
    );
    command.args(["-Urm", "sh", "-c", &setup]);
    let mut client = crate::support::ClientBuilder::new(command)
        .session("s-1")
        .start();
    client
        .save(json!({"goal": "g", "projectRoot": merged}))
        .ok();
    std::fs::write(upper.join("f"), "changed from below").unwrap();
    let saved = client.save(json!({"goal": "g"})).ok();
    let file: Value =
        serde_json::from_slice(&std::fs::read(upper.join(".claude-checkpoints/s-1.json")).unwrap())
            .unwrap();
    let hash = {
        repo.write("copy", "changed from below");
        repo.hash("copy")
    };
    assert_eq!(records(&file)["f"].1, Some(hash), "{saved}");
    let reason = project(&world)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("overlay"), "{reason}");
}

#[test]
fn a_restarted_daemon_knows_the_hashes_it_knew_and_a_broken_cache_is_begun_anew() {
    let world = World::new();
    let repo = world.repository();
    repo.write("f", "x");
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    let cache = world.state().join("cache");
    assert!(cache.is_dir());
    world.kill_daemons();
    for entry in std::fs::read_dir(&cache).unwrap().filter_map(Result::ok) {
        if entry.file_type().unwrap().is_file() {
            std::fs::write(entry.path(), "rubbish").unwrap();
        }
    }
    repo.write("f", "y");
    let (found, _) = recorded(&mut client, repo.root());
    assert_eq!(found, oracle(&repo));
}
