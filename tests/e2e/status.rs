//! What git lists, one letter a path, against the real git (contract §5).

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Repository, World, checkpoint};

/// Status and hash by path.
pub(crate) type Listed = BTreeMap<String, (String, Option<String>)>;

/// Saves and gives status and hash by path.
fn recorded(world: &World, repo: &Repository) -> Listed {
    let mut client = world.client(repo).session("s-1").start();
    let saved = client.save(json!({"goal": "g"})).ok();
    assert_eq!(saved["warnings"], json!([]));
    records(&checkpoint(repo, "s-1"))
}

pub(crate) fn records(file: &Value) -> Listed {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    file["modifiedFiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| {
            (
                text(&f["path"]).unwrap(),
                (text(&f["status"]).unwrap(), text(&f["hash"])),
            )
        })
        .collect()
}

/// What git says, by the contract's rule for the letter.
pub(crate) fn oracle(repo: &Repository) -> Listed {
    oracle_and_sources(repo).0
}

/// The same, and the paths that git lists as renamed away.
pub(crate) fn oracle_and_sources(repo: &Repository) -> (Listed, Vec<String>) {
    let (_, out, _) = repo.try_git(&[
        "--no-optional-locks",
        "-c",
        "core.quotePath=false",
        "status",
        "--porcelain=v1",
        "-z",
        "-uall",
    ]);
    let mut fields = out.split('\0').filter(|field| !field.is_empty());
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut sources = Vec::new();
    while let Some(field) = fields.next() {
        let (xy, path) = (&field[..2], field[3..].to_owned());
        if xy.contains('R') || xy.contains('C') {
            sources.extend(fields.next().map(str::to_owned));
        }
        let unmerged = xy.contains('U') || xy == "AA" || xy == "DD";
        let letter = if unmerged {
            "U"
        } else if xy == "??" {
            "??"
        } else {
            ["D", "A", "R", "C", "T"]
                .into_iter()
                .find(|l| xy.contains(l))
                .unwrap_or("M")
        };
        // A file that is deleted in the index and still there is listed twice; `??` wins.
        if letter == "??" || !found.contains_key(&path) {
            found.insert(path, letter.to_owned());
        }
    }
    let listed = found
        .into_iter()
        .map(|(path, letter)| {
            let place = repo.path(&path);
            let behind_link = place
                .ancestors()
                .skip(1)
                .take_while(|parent| *parent != repo.root())
                .any(std::path::Path::is_symlink);
            let hash = match place.symlink_metadata() {
                _ if behind_link => None,
                Ok(metadata) if metadata.is_symlink() => Some(link_hash(repo, &place)),
                Ok(metadata) if metadata.is_file() => Some(repo.hash(&path)),
                _ => None,
            };
            (path, (letter, hash))
        })
        .collect();
    (listed, sources)
}

fn link_hash(repo: &Repository, link: &std::path::Path) -> String {
    let target = link.read_link().unwrap();
    let file = repo.path(".git/link-text");
    std::fs::write(&file, target.to_str().unwrap()).unwrap();
    repo.git(&["hash-object", "--no-filters", file.to_str().unwrap()])
}

#[track_caller]
fn as_git_says(world: &World, repo: &Repository) {
    assert_eq!(recorded(world, repo), oracle(repo));
}

#[test]
fn every_state_of_a_file_is_what_git_says() {
    let world = World::new();
    let repo = world.repository();
    let names = [
        "edited", "staged", "both", "removed", "deleted", "uncached", "renamed", "typed", "mode",
        "touched", "d/a", "d/b", "linked",
    ];
    for name in names {
        repo.write(name, format!("{name}\n").repeat(20));
    }
    symlink("edited", repo.path("link")).unwrap();
    symlink("missing", repo.path("dangling")).unwrap();
    symlink("loop", repo.path("loop")).unwrap();
    repo.commit_all("files");
    repo.write("edited", "x");
    repo.write("staged", "x");
    repo.git(&["add", "staged"]);
    repo.write("both", "x");
    repo.git(&["add", "both"]);
    repo.write("both", "y");
    repo.remove("removed");
    repo.git(&["rm", "--quiet", "deleted"]);
    repo.git(&["rm", "--quiet", "--cached", "uncached"]);
    repo.git(&["mv", "renamed", "moved"]);
    repo.remove("typed");
    symlink("edited", repo.path("typed")).unwrap();
    std::fs::set_permissions(repo.path("mode"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let old = repo.path("touched").metadata().unwrap().modified().unwrap();
    std::fs::File::options()
        .write(true)
        .open(repo.path("touched"))
        .unwrap()
        .set_modified(old + std::time::Duration::from_secs(5))
        .unwrap();
    std::fs::remove_dir_all(repo.path("d")).unwrap();
    repo.write("d", "now a file");
    repo.remove("dangling");
    symlink("elsewhere", repo.path("dangling")).unwrap();
    repo.write("new/deep/file", "x");
    repo.write("added", "x");
    repo.git(&["add", "added"]);
    repo.write("gone", "nothing else has this content");
    repo.git(&["add", "gone"]);
    repo.remove("gone");
    repo.write("intended", "x");
    repo.write("empty", "");
    repo.git(&["add", "--intent-to-add", "intended", "empty"]);
    repo.write(".gitignore", "ignored/\n*.log\n");
    repo.write("ignored/x", "x");
    repo.write("x.log", "x");
    std::fs::create_dir_all(repo.path("only/empty/directories")).unwrap();
    as_git_says(&world, &repo);
}

#[test]
fn before_the_first_commit_files_are_recorded_and_git_is_null() {
    let world = World::new();
    let repo = world.empty_repository_at("repo", &[]);
    repo.write("a", "a");
    repo.write("b", "b");
    repo.git(&["add", "a", "b"]);
    repo.write("b", "c");
    repo.write("c", "c");
    as_git_says(&world, &repo);
    assert_eq!(checkpoint(&repo, "s-1")["git"], Value::Null);
}

#[test]
fn a_conflict_is_unmerged() {
    let world = World::new();
    let repo = world.repository();
    for name in ["both", "theirs-deleted"] {
        repo.write(name, "base\n");
    }
    repo.commit_all("base");
    repo.git(&["switch", "--quiet", "--create", "other"]);
    repo.write("both", "other\n");
    repo.write("added", "other\n");
    repo.git(&["rm", "--quiet", "theirs-deleted"]);
    repo.commit_all("other");
    repo.git(&["switch", "--quiet", "main"]);
    repo.write("both", "main\n");
    repo.write("added", "main\n");
    repo.write("theirs-deleted", "main\n");
    repo.commit_all("main");
    assert!(!repo.try_git(&["merge", "other"]).0);
    as_git_says(&world, &repo);
}

#[test]
fn unusual_names_are_recorded_once_and_as_they_are() {
    let world = World::new();
    let repo = world.repository();
    let names = [
        "new\nline",
        "tab\tx",
        "q\"uote",
        "back\\slash",
        " lead",
        "trail ",
        "-rf",
        "--help",
        "a b/ b/c",
        "sep\u{2028}x",
        "*?[x]",
        "emoji\u{1f600}",
        "$(touch PWNED)",
        "é",
        "e\u{301}",
    ];
    for name in &names[..8] {
        repo.write(name, "x");
    }
    repo.commit_all("names");
    for name in names {
        repo.write(name, format!("now {name}"));
    }
    as_git_says(&world, &repo);
    let mut client = world.client(&repo).session("s-1").start();
    let loaded = client.load(json!({})).ok();
    assert_eq!(loaded["drift"]["changedSince"], json!([]));
    assert!(!repo.path("PWNED").exists());
}

#[test]
fn a_name_that_is_no_unicode_is_recorded_and_never_said_to_be_unchanged() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new();
    let repo = world.repository();
    let name = std::ffi::OsStr::from_bytes(b"b\xffd");
    std::fs::write(repo.root().join(name), "x").unwrap();
    let found = recorded(&world, &repo);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["b\u{fffd}d"]);
    let mut client = world.client(&repo).session("s-1").start();
    let loaded = client.load(json!({})).ok();
    assert_eq!(loaded["drift"]["changedSince"], json!([]));
    assert!(
        loaded["text"]
            .as_str()
            .unwrap()
            .contains("not checked: `b\u{fffd}d`")
    );
}

#[test]
fn specials_are_never_opened() {
    let world = World::new();
    let repo = world.repository();
    repo.write("g", "x");
    repo.write("d/a", "x");
    repo.commit_all("files");
    std::fs::remove_dir_all(repo.path("d")).unwrap();
    repo.remove("g");
    for name in ["pipe", "g", "d"] {
        assert!(
            Command::new("mkfifo")
                .arg(repo.path(name))
                .status()
                .unwrap()
                .success()
        );
    }
    let _socket = std::os::unix::net::UnixListener::bind(repo.path("s.sock")).unwrap();
    let found = recorded(&world, &repo);
    assert_eq!(found["d/a"], ("D".to_owned(), None));
    assert!(["T", "D", "M"].contains(&found["g"].0.as_str()) && found["g"].1.is_none());
    assert!(!found.contains_key("pipe") && !found.contains_key("s.sock"));
}

#[test]
fn nested_repositories_and_worktrees_are_one_entry_as_for_git() {
    let world = World::new();
    let repo = world.repository();
    repo.git(&[
        "worktree",
        "add",
        "--quiet",
        ".worktrees/feature",
        "-b",
        "feature",
    ]);
    repo.write(".worktrees/feature/untracked", "x");
    repo.git(&["init", "--quiet", "vendor/lib"]);
    repo.write("vendor/lib/file", "x");
    repo.write("vendor/plain", "x");
    as_git_says(&world, &repo);
    let inner = Repository::at(repo.path(".worktrees/feature"), world.home());
    as_git_says(&world, &inner);
    assert_eq!(checkpoint(&inner, "s-1")["git"]["branch"], "feature");
}

#[test]
fn submodules_are_modified_as_git_says_and_as_configured() {
    let world = World::new();
    let library = world.repository_at("library");
    let repo = world.repository();
    let source = library.root().to_str().unwrap();
    for name in ["commit", "dirty", "untracked", "clean", "absent"] {
        repo.git(&[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            source,
            name,
        ]);
    }
    repo.commit_all("submodules");
    let inside = |name: &str| Repository::at(repo.path(name), world.home());
    inside("commit").commit("more");
    inside("dirty").write("README.md", "changed");
    inside("untracked").write("new", "x");
    std::fs::create_dir_all(repo.path("clean/e/e")).unwrap();
    repo.git(&["submodule", "--quiet", "deinit", "absent"]);
    as_git_says(&world, &repo);
    for ignore in ["untracked", "dirty", "all"] {
        repo.git(&["config", "diff.ignoreSubmodules", ignore]);
        as_git_says(&world, &repo);
    }
    repo.git(&["config", "--unset", "diff.ignoreSubmodules"]);
    repo.git(&["config", "submodule.dirty.ignore", "all"]);
    as_git_says(&world, &repo);
}

#[test]
fn what_the_index_hides_stays_hidden() {
    let world = World::new();
    let repo = world.repository();
    for n in 0..20 {
        repo.write(&format!("dir{}/f{n}", n % 4), "x");
    }
    for name in ["skipped", "skipped-too", "assumed"] {
        repo.write(name, "x");
    }
    repo.commit_all("files");
    repo.git(&["update-index", "--skip-worktree", "skipped", "skipped-too"]);
    repo.git(&["update-index", "--assume-unchanged", "assumed"]);
    repo.remove("skipped");
    repo.write("skipped-too", "y");
    repo.write("assumed", "y");
    as_git_says(&world, &repo);

    let sparse = world.repository_at("sparse");
    for n in 0..20 {
        sparse.write(&format!("dir{}/f{n}", n % 4), "x");
    }
    sparse.commit_all("files");
    sparse.git(&["sparse-checkout", "set", "--cone", "dir1"]);
    sparse.write("dir1/f1", "changed");
    as_git_says(&world, &sparse);
    assert_eq!(
        checkpoint(&sparse, "s-1")["modifiedFiles"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn line_endings_alone_are_no_modification_and_hashes_are_of_the_raw_content() {
    let world = World::new();
    let repo = world.repository();
    repo.write(".gitattributes", "* text=auto\n*.bin -text\n");
    for name in ["a.txt", "b.txt", "c.bin"] {
        repo.write(name, "one\ntwo\n");
    }
    repo.commit_all("files");
    repo.write("a.txt", "one\r\ntwo\r\n");
    repo.write("b.txt", "one\r\nthree\r\n");
    repo.write("c.bin", "one\r\ntwo\r\n");
    as_git_says(&world, &repo);
    // Once git has looked at the content it knows that nothing but line endings differs.
    repo.git(&["add", "a.txt"]);
    as_git_says(&world, &repo);
    let found = records(&checkpoint(&repo, "s-1"));
    assert_eq!(found.keys().collect::<Vec<_>>(), ["b.txt", "c.bin"]);
}

#[test]
fn no_program_that_a_repository_names_is_run() {
    let world = World::new();
    let library = world.repository_at("library");
    let repo = world.repository();
    repo.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        library.root().to_str().unwrap(),
        "sub",
    ]);
    repo.write(".gitattributes", "*.dat filter=evil\n*.lfs filter=lfs\n");
    repo.write("a.dat", "one\n");
    let content = "the real content\n";
    repo.write("big.lfs", content);
    repo.commit_all("files");
    // The pointer that LFS would have put into the index.
    let oid = Command::new("sha256sum")
        .arg(repo.path("big.lfs"))
        .output()
        .unwrap()
        .stdout;
    let oid = String::from_utf8(oid).unwrap()[..64].to_owned();
    repo.write(
        "big.lfs",
        format!(
            "version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {}\n",
            content.len()
        ),
    );
    repo.commit_all("pointer");
    repo.write("big.lfs", content);

    let pwned = world.path().join("PWNED");
    let command = format!("touch {}", pwned.display());
    for place in [&repo, &Repository::at(repo.path("sub"), world.home())] {
        for key in [
            "filter.evil.clean",
            "filter.evil.process",
            "filter.lfs.clean",
            "core.fsmonitor",
            "diff.external",
        ] {
            place.git(&["config", key, &command]);
        }
        place.git(&["config", "filter.evil.required", "true"]);
    }
    std::fs::write(repo.path("sub/.gitattributes"), "* filter=evil\n").unwrap();
    std::fs::write(repo.path("sub/README.md"), "changed\n").unwrap();
    repo.write("a.dat", "two\n");
    let found = recorded(&world, &repo);
    assert!(!pwned.exists());
    assert_eq!(found["a.dat"], ("M".to_owned(), Some(repo.hash("a.dat"))));
    assert_eq!(found["sub"].0, "M");
    assert!(
        !found.contains_key("big.lfs"),
        "the content is what the pointer says: {found:?}"
    );
    repo.write("big.lfs", "other content\n");
    assert_eq!(recorded(&world, &repo)["big.lfs"].0, "M");
}

#[test]
fn the_environment_of_the_client_redirects_nothing() {
    let world = World::new();
    let [x, y] = ["x", "y"].map(|name| world.repository_at(name));
    x.git(&["switch", "--quiet", "--create", "of-x"]);
    y.write("of-y", "y");
    let mut client = world
        .client(&y)
        .session("s-1")
        .env("GIT_DIR", x.path(".git"))
        .env("GIT_WORK_TREE", x.root())
        .env("GIT_INDEX_FILE", x.path(".git/index"))
        .env("GIT_OBJECT_DIRECTORY", x.path(".git/objects"))
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "core.bare")
        .env("GIT_CONFIG_VALUE_0", "true")
        .env("SESSION_CHECKPOINT_DAEMON", "off")
        .start();
    client.save(json!({"goal": "g"})).ok();
    let file = checkpoint(&y, "s-1");
    assert_eq!(file["git"]["branch"], "main");
    assert_eq!(records(&file).keys().collect::<Vec<_>>(), ["of-y"]);
}

#[test]
fn the_index_is_only_read() {
    let world = World::new();
    let repo = world.repository();
    repo.write("a", "x");
    repo.commit_all("a");
    repo.write("a", "y");
    std::fs::write(repo.path(".git/index.lock"), "").unwrap();
    let before = std::fs::read(repo.path(".git/index")).unwrap();
    let found = recorded(&world, &repo);
    assert_eq!(found.len(), 1);
    assert_eq!(std::fs::read(repo.path(".git/index")).unwrap(), before);
}

#[test]
fn a_repository_that_cannot_be_read_is_named_and_the_save_goes_on() {
    let world = World::new();
    let outer = world.repository_at("outer");
    let main = world.repository_at("outer/w/main");
    let tree = outer.path("w/wt");
    main.git(&[
        "worktree",
        "add",
        "--quiet",
        tree.to_str().unwrap(),
        "-b",
        "wt",
    ]);
    std::fs::rename(main.root(), outer.path("w/moved")).unwrap();
    let mut client = world.client(&tree).session("s-1").start();
    let saved = client
        .save(json!({"goal": "g", "modifiedFiles": ["README.md"]}))
        .ok();
    let warning = saved["warnings"][0].as_str().unwrap();
    assert!(warning.contains("wt/.git"), "{warning}");
    let file = checkpoint(&tree, "s-1");
    assert_eq!(file["git"], Value::Null);
    assert_eq!(file["modifiedFiles"][0]["hash"].as_str().unwrap().len(), 40);
    assert_eq!(
        file["modifiedFiles"].as_array().unwrap().len(),
        1,
        "nothing of the outer repository"
    );

    let reftable = world.empty_repository_at("reftable", &["--ref-format=reftable"]);
    reftable.write("a", "x");
    reftable.commit_all("a");
    let mut client = world.client(&reftable).session("s-1").start();
    let saved = client
        .save(json!({"goal": "g", "modifiedFiles": ["a"]}))
        .ok();
    assert!(
        saved["warnings"][0].as_str().unwrap().contains("reftable"),
        "{saved}"
    );
    let file = checkpoint(&reftable, "s-1");
    assert_eq!(
        (&file["git"], &file["modifiedFiles"][0]["hash"]),
        (&Value::Null, &json!(reftable.hash("a")))
    );
}

#[test]
fn a_repository_of_another_user_is_not_trusted_unless_the_user_says_so() {
    let world = World::new();
    let repo = world.repository();
    repo.write("a", "x");
    let chown = |owner: &str| {
        Command::new("chown")
            .args(["-R", owner])
            .arg(repo.root())
            .status()
            .unwrap()
            .success()
    };
    if !chown("12345") {
        return; // only root can give files away
    }
    let mut client = world.client(&repo).session("s-1").start();
    let saved = client
        .save(json!({"goal": "g", "modifiedFiles": ["a"]}))
        .ok();
    let warning = saved["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains("another user") && warning.contains("repo"),
        "{warning}"
    );
    assert_eq!(checkpoint(&repo, "s-1")["git"], Value::Null);
    std::fs::write(world.home().join(".gitconfig"), "[safe]\n\tdirectory = *\n").unwrap();
    let saved = client.save(json!({"goal": "g"})).ok();
    assert_eq!(saved["warnings"], json!([]));
    assert_eq!(checkpoint(&repo, "s-1")["git"]["branch"], "main");
}

#[test]
fn a_sha256_repository_has_hashes_of_its_own_kind() {
    let world = World::new();
    let repo = world.empty_repository_at("repo", &["--object-format=sha256"]);
    repo.write("a", "x");
    repo.commit_all("a");
    repo.write("a", "y");
    as_git_says(&world, &repo);
    let file = checkpoint(&repo, "s-1");
    assert_eq!(file["git"]["head"], repo.head());
    assert_eq!(file["modifiedFiles"][0]["hash"].as_str().unwrap().len(), 64);
    repo.write("a", "z");
    let mut client = world.client(&repo).session("s-1").start();
    assert_eq!(
        client.load(json!({})).ok()["drift"]["changedSince"],
        json!(["a"])
    );
}

#[test]
fn a_split_index_is_read() {
    let world = World::new();
    let repo = world.repository();
    for n in 0..50 {
        repo.write(&format!("f{n}"), "x");
    }
    repo.commit_all("files");
    repo.git(&["update-index", "--split-index"]);
    repo.write("f1", "y");
    repo.write("f2", "y");
    repo.write("f3", "y");
    repo.git(&["add", "f3"]);
    as_git_says(&world, &repo);
}
