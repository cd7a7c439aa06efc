//! What changed since a checkpoint, and what could not be told (contract §2).

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::{Client, Repository, World};

/// A repository with files a to e committed, all of them edited, and saved.
fn saved(world: &World) -> (Repository, Client) {
    let repo = world.repository();
    for name in ["a", "b", "c", "d", "e", "clean", "clean-too"] {
        repo.write(name, "one\n");
    }
    repo.commit_all("files");
    for name in ["a", "b", "c", "d", "e"] {
        repo.write(name, format!("two {name}\n"));
    }
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    (repo, client)
}

fn drift(client: &mut Client) -> Value {
    client.load(json!({})).ok()["drift"].take()
}

fn since(client: &mut Client) -> String {
    let loaded = client.load(json!({})).ok();
    let text = loaded["text"].as_str().unwrap();
    text.split_once("## Since this checkpoint\n")
        .map_or(String::new(), |(_, since)| since.to_owned())
}

#[test]
fn only_content_counts() {
    let world = World::new();
    let (repo, mut client) = saved(&world);
    assert_eq!(since(&mut client), "");
    repo.git(&["add", "a"]);
    repo.git(&["add", "b"]);
    repo.commit("b and a");
    repo.write("c", "two c\n"); // touched
    repo.write("d", "away\n");
    repo.write("d", "two d\n"); // moved back
    let found = drift(&mut client);
    assert_eq!(
        (&found["changedSince"], &found["newSince"]),
        (&json!([]), &json!([]))
    );
    repo.write("a", "three\n");
    repo.remove("b");
    repo.remove("c");
    symlink("d", repo.path("c")).unwrap();
    repo.remove("e");
    std::fs::create_dir(repo.path("e")).unwrap();
    assert_eq!(
        drift(&mut client)["changedSince"],
        json!(["a", "b", "c", "e"])
    );
    let said = since(&mut client);
    assert!(
        said.contains("1 new commit on HEAD") && said.contains("`a`, `b`, `c`, `e`"),
        "{said}"
    );
}

#[test]
fn same_size_and_same_time_hide_no_change() {
    let world = World::new();
    let (repo, mut client) = saved(&world);
    let time = repo.path("a").metadata().unwrap().modified().unwrap();
    repo.write("a", "two A\n");
    std::fs::File::options()
        .write(true)
        .open(repo.path("a"))
        .unwrap()
        .set_modified(time)
        .unwrap();
    assert_eq!(drift(&mut client)["changedSince"], json!(["a"]));
}

#[test]
fn a_deleted_file_that_is_back_counts() {
    let world = World::new();
    let repo = world.repository();
    repo.write("gone", "x");
    repo.commit_all("gone");
    repo.remove("gone");
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    assert_eq!(drift(&mut client)["changedSince"], json!([]));
    repo.write("gone", "x");
    assert_eq!(drift(&mut client)["changedSince"], json!(["gone"]));
}

#[test]
fn a_renamed_file_is_recorded_under_its_new_path() {
    let world = World::new();
    let repo = world.repository();
    repo.write("old", "some content that is long enough\n".repeat(10));
    repo.commit_all("old");
    repo.git(&["mv", "old", "new"]);
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    let file = crate::support::checkpoint(&repo, "s-1");
    assert_eq!(
        file["modifiedFiles"],
        json!([{"path": "new", "status": "R", "source": "git", "hash": repo.hash("new")}])
    );
    repo.commit("renamed");
    assert_eq!(drift(&mut client)["changedSince"], json!([]));
    assert_eq!(
        drift(&mut client)["newSince"],
        json!([]),
        "the old name was gone already"
    );
    repo.write("kept", "another content that is long enough\n".repeat(10));
    repo.commit_all("kept");
    client.save(json!({"goal": "g"})).ok();
    repo.git(&["mv", "kept", "moved"]);
    assert_eq!(drift(&mut client)["newSince"], json!(["kept", "moved"]));
    repo.commit("moved");
    assert_eq!(drift(&mut client)["newSince"], json!(["kept", "moved"]));
}

#[test]
fn files_that_were_clean_then_are_new() {
    let world = World::new();
    let (repo, mut client) = saved(&world);
    repo.write("clean", "edited\n");
    repo.write("untracked", "x\n");
    repo.git(&["add", "a"]);
    repo.write("clean-too", "committed\n");
    repo.write("added", "x\n");
    repo.git(&["add", "clean-too", "added"]);
    repo.commit("more");
    let found = drift(&mut client);
    assert_eq!(
        found["newSince"],
        json!(["added", "clean", "clean-too", "untracked"])
    );
    assert_eq!(
        (&found["changedSince"], &found["commitsSince"]),
        (&json!([]), &json!(1))
    );
    repo.write("clean", "one\n");
    repo.remove("untracked");
    repo.write("clean-too", "one\n"); // modified now, but as it was then
    assert_eq!(drift(&mut client)["newSince"], json!(["added"]));
}

#[test]
fn branches_and_detached_heads_are_told() {
    let world = World::new();
    let (repo, mut client) = saved(&world);
    repo.git(&["switch", "--quiet", "--create", "feat/x"]);
    let found = drift(&mut client);
    assert_eq!(
        (
            &found["branchChanged"],
            &found["currentBranch"],
            &found["commitsSince"]
        ),
        (&json!(true), &json!("feat/x"), &json!(0))
    );
    assert!(since(&mut client).contains("HEAD is on `feat/x`; it was on `main` then"));
    repo.git(&["switch", "--quiet", "--detach"]);
    let found = drift(&mut client);
    assert_eq!(
        (&found["branchChanged"], &found["currentBranch"]),
        (&json!(true), &Value::Null)
    );
    client.save(json!({"goal": "detached"})).ok();
    let file = crate::support::checkpoint(&repo, "s-1");
    assert_eq!(file["git"]["branch"], Value::Null);
    let text = client.load(json!({})).ok()["text"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        text.contains(&format!(
            "detached @ {} (uncommitted changes)",
            &repo.head()[..9]
        )),
        "{text}"
    );
    assert_eq!(drift(&mut client)["branchChanged"], false);
}

#[test]
fn a_saved_commit_that_head_left_is_told_by_what_still_has_it() {
    let world = World::new();
    let (repo, mut client) = saved(&world);
    repo.git(&["stash", "--quiet"]);
    repo.git(&["branch", "keeper"]);
    repo.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    repo.commit("another way");
    let loaded = client.load(json!({})).ok();
    assert_eq!(loaded["drift"]["commitsSince"], Value::Null);
    assert!(
        loaded["text"]
            .as_str()
            .unwrap()
            .contains("HEAD is on other history")
    );
    assert!(
        !loaded["warnings"]
            .to_string()
            .contains("no longer reachable")
    );

    repo.git(&["branch", "--quiet", "-D", "keeper"]);
    let loaded = client.load(json!({})).ok();
    assert_eq!(loaded["drift"]["commitsSince"], Value::Null);
    let warnings = loaded["warnings"].to_string();
    assert!(
        warnings.contains("Saved commit") && warnings.contains("no longer reachable"),
        "{warnings}"
    );
    // The commit itself is still there, so trees can be compared.
    assert_eq!(loaded["drift"]["newSince"], json!(["clean", "clean-too"]));

    repo.git(&["stash", "drop", "--quiet"]);
    repo.git(&["reflog", "expire", "--expire=now", "--all"]);
    repo.git(&["gc", "--quiet", "--prune=now"]);
    let loaded = client.load(json!({})).ok();
    let warnings = loaded["warnings"].to_string();
    assert!(
        warnings.contains("no longer reachable") && warnings.contains("only uncommitted changes"),
        "{warnings}"
    );
    assert_eq!(loaded["drift"]["newSince"], json!([]));
}

#[test]
fn an_orphan_branch_is_other_history_and_identical_files_are_not_new() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    repo.git(&["switch", "--quiet", "--orphan", "fresh"]);
    repo.git(&["checkout", "main", "--", "."]);
    let loaded = client.load(json!({})).ok();
    assert_eq!(
        (
            &loaded["drift"]["commitsSince"],
            &loaded["drift"]["newSince"]
        ),
        (&Value::Null, &json!([]))
    );
    assert!(since(&mut client).contains("HEAD is on other history"));
}

#[test]
fn a_file_that_became_a_link_with_its_old_content_as_text_is_changed() {
    let world = World::new();
    let repo = world.repository();
    repo.write("f", "x");
    repo.commit_all("f");
    repo.write("f", "target");
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    repo.remove("f");
    symlink("target", repo.path("f")).unwrap();
    assert_eq!(drift(&mut client)["changedSince"], json!(["f"]));
}

#[test]
fn where_git_is_gone_it_is_said_that_only_recorded_files_count() {
    let world = World::new();
    let (repo, mut client) = saved(&world);
    std::fs::remove_dir_all(repo.path(".git")).unwrap();
    repo.write("clean", "edited");
    let loaded = client.load(json!({})).ok();
    assert_eq!(loaded["drift"]["newSince"], json!([]));
    assert!(
        loaded["warnings"]
            .to_string()
            .contains("not in a git repository any more")
    );
}

#[test]
fn a_remote_branch_keeps_the_saved_commit_reachable() {
    let world = World::new();
    let (repo, mut client) = saved(&world);
    repo.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    repo.git(&["stash", "--quiet"]);
    repo.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    assert!(since(&mut client).contains("HEAD is on other history"));
}

#[test]
fn without_a_commit_or_without_git_only_recorded_files_are_compared() {
    let world = World::new();
    let unborn = world.empty_repository_at("unborn", &[]);
    let plain = world.directory("plain");
    for root in [unborn.root(), plain.as_path()] {
        std::fs::write(root.join("a"), "one").unwrap();
        let mut client = world.client(root).session("s-1").start();
        client
            .save(json!({"goal": "g", "modifiedFiles": ["a"]}))
            .ok();
        let file = crate::support::checkpoint(root, "s-1");
        assert_eq!(file["git"], Value::Null);
        // By the definition of a blob: "blob 3\0one".
        assert_eq!(
            file["modifiedFiles"][0]["hash"],
            "43dd47ea691c90a5fa7827892c70241913351963"
        );
        let text = client.load(json!({})).ok()["text"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(!text.contains("## Since"), "{text}");
        std::fs::write(root.join("a"), "two").unwrap();
        std::fs::write(root.join("b"), "two").unwrap();
        let found = drift(&mut client);
        assert_eq!(
            (&found["changedSince"], &found["newSince"]),
            (&json!(["a"]), &json!([]))
        );
        assert_eq!(since(&mut client).lines().count(), 1);
    }
}

#[test]
fn shallow_clones_and_linked_worktrees_are_compared_like_others() {
    let world = World::new();
    let origin = world.repository_at("origin");
    for n in 0..5 {
        origin.write("a", format!("{n}"));
        origin.commit_all("more");
    }
    let shallow = world.directory("clones").join("shallow");
    let url = format!("file://{}", origin.root().display());
    origin.git(&[
        "clone",
        "--quiet",
        "--depth=2",
        &url,
        shallow.to_str().unwrap(),
    ]);
    origin.git(&["worktree", "add", "--quiet", "../linked", "-b", "linked"]);
    for root in [shallow, world.path().join("linked")] {
        let repo = Repository::at(root, world.home());
        repo.write("a", "edited");
        let mut client = world.client(&repo).session("s-1").start();
        client.save(json!({"goal": "g"})).ok();
        repo.commit_all("one");
        repo.commit("two");
        let found = drift(&mut client);
        assert_eq!(
            (&found["changedSince"], &found["commitsSince"]),
            (&json!([]), &json!(2))
        );
    }
}

#[test]
fn what_could_not_be_checked_is_named_and_never_looks_unchanged() {
    let world = World::new();
    let repo = world.repository();
    repo.write("big", "x");
    repo.write("dir/file", "x");
    let big = std::fs::File::create(repo.path("big")).unwrap();
    big.set_len(64 * 1024 * 1024 + 1).unwrap();
    let mut client = world.client(&repo).session("s-1").start();
    let saved = client
        .save(json!({"goal": "g", "modifiedFiles": ["dir"]}))
        .ok();
    assert!(saved["warnings"].to_string().contains("`dir`"), "{saved}");
    let file = crate::support::checkpoint(&repo, "s-1");
    let record = file["modifiedFiles"]
        .as_array()
        .unwrap()
        .iter()
        .find(|f| f["path"] == "big")
        .unwrap();
    assert!(record.get("hash").is_none());
    let said = since(&mut client);
    assert!(said.contains("not checked: `dir`, `big`"), "{said}");
    let loaded = client.load(json!({})).ok();
    assert!(
        loaded["warnings"]
            .to_string()
            .contains("2 recorded file(s) could not be checked")
    );
    assert_eq!(loaded["drift"]["changedSince"], json!([]));
}

#[test]
fn many_changes_are_cut_and_counted() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    for n in 0..250 {
        repo.write(&format!("f{n:03}"), "x");
    }
    let loaded = client.load(json!({})).ok();
    assert_eq!(loaded["drift"]["newSince"].as_array().unwrap().len(), 200);
    assert_eq!(loaded["drift"]["newOmitted"], 50);
    assert!(loaded["drift"].get("changedOmitted").is_none());
    let text = loaded["text"].as_str().unwrap();
    assert!(text.contains("and 210 more") && text.len() < 2000, "{text}");
}

#[test]
fn a_merge_records_the_content_of_earlier_files_as_it_is_now() {
    let world = World::new();
    let (repo, mut client) = saved(&world);
    repo.commit_all("all");
    repo.write("a", "three\n");
    repo.commit_all("a again");
    assert_eq!(drift(&mut client)["changedSince"], json!(["a"]));
    client.save(json!({"goal": "g", "mode": "merge"})).ok();
    let file = crate::support::checkpoint(&repo, "s-1");
    let records = file["modifiedFiles"].as_array().unwrap();
    assert_eq!(records.len(), 5);
    for record in records {
        assert_eq!(
            (&record["source"], &record["status"]),
            (&json!("agent"), &json!("M"))
        );
        assert_eq!(record["hash"], repo.hash(record["path"].as_str().unwrap()));
    }
    assert_eq!(drift(&mut client)["changedSince"], json!([]));
}
