//! Which directory is the project (contract §4).

use std::path::Path;

use serde_json::json;

use crate::support::{Client, Roots, World};

/// Saves and tells in which directory the file is.
fn root_of(client: &mut Client) -> String {
    let saved = client.save(json!({"goal": "g"})).ok();
    let path = Path::new(saved["path"].as_str().unwrap());
    path.parent()
        .unwrap()
        .parent()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned()
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

#[test]
fn the_sources_come_in_their_order() {
    let world = World::new();
    let [argument, variable, root, project, cwd] =
        ["argument", "variable", "root", "project", "cwd"].map(|name| world.directory(name));
    let all = || {
        world
            .client(&cwd)
            .env("CHECKPOINT_PROJECT_ROOT", &variable)
            .env("CLAUDE_PROJECT_DIR", &project)
            .roots(Roots::Uris(vec![uri(&root)]))
    };
    let mut client = all().start();
    let saved = client
        .save(json!({"goal": "g", "projectRoot": argument}))
        .ok();
    assert!(
        saved["path"]
            .as_str()
            .unwrap()
            .starts_with(argument.to_str().unwrap())
    );
    assert_eq!(root_of(&mut client), variable.to_str().unwrap());
    let mut client = all().env("CHECKPOINT_PROJECT_ROOT", "").start();
    assert_eq!(root_of(&mut client), root.to_str().unwrap());
    let mut client = all()
        .env("CHECKPOINT_PROJECT_ROOT", "")
        .roots(Roots::Undeclared)
        .start();
    assert_eq!(root_of(&mut client), project.to_str().unwrap());
    let mut client = world.client(&cwd).start();
    assert_eq!(root_of(&mut client), cwd.to_str().unwrap());
    // Under another client the project variable was inherited.
    let mut client = world
        .client(&cwd)
        .env("CLAUDE_PROJECT_DIR", &project)
        .name("cursor")
        .start();
    assert_eq!(root_of(&mut client), cwd.to_str().unwrap());
    // The newest protocol has no roots to ask for.
    let mut client = all()
        .env("CHECKPOINT_PROJECT_ROOT", "")
        .version("2026-07-28")
        .start();
    assert_eq!(root_of(&mut client), project.to_str().unwrap());
}

#[test]
fn a_root_that_was_named_and_is_unusable_is_refused_by_name() {
    let world = World::new();
    let cwd = world.directory("cwd");
    let file = cwd.join("file");
    std::fs::write(&file, "").unwrap();
    for (bad, reason) in [
        ("relative", "not an absolute"),
        ("/no/such", "does not exist"),
        (file.to_str().unwrap(), "not a directory"),
        ("~", "not an absolute"),
    ] {
        let error = world
            .client(&cwd)
            .start()
            .save(json!({"goal": "g", "projectRoot": bad}))
            .error();
        assert!(
            error.contains("`projectRoot`") && error.contains(reason),
            "{error}"
        );
        for variable in ["CHECKPOINT_PROJECT_ROOT", "CLAUDE_PROJECT_DIR"] {
            let error = world
                .client(&cwd)
                .env(variable, bad)
                .start()
                .save(json!({"goal": "g"}))
                .error();
            assert!(
                error.contains(variable) && error.contains(reason),
                "{error}"
            );
        }
    }
}

#[test]
fn a_git_directory_is_no_project() {
    let world = World::new();
    let repo = world.repository();
    let bare = world.directory("bare");
    repo.git(&["clone", "--quiet", "--bare", ".", bare.to_str().unwrap()]);
    for root in [repo.path(".git"), repo.path(".git/refs"), bare] {
        let error = world
            .client(&root)
            .start()
            .save(json!({"goal": "g"}))
            .error();
        assert!(error.contains("git directory"), "{error}");
    }
    let mut client = world.client(&repo).start();
    let saved = client
        .save(json!({"goal": "g", "modifiedFiles": [".git/config"]}))
        .ok();
    assert!(saved["warnings"].to_string().contains("git directory"));
}

#[test]
fn a_given_path_through_a_link_is_the_path_it_leads_to() {
    let world = World::new();
    let repo = world.repository();
    repo.write("real/a", "x");
    std::os::unix::fs::symlink("real", repo.path("inside")).unwrap();
    std::os::unix::fs::symlink(world.home(), repo.path("outside")).unwrap();
    let mut client = world.client(&repo).session("s-1").start();
    let saved = client
        .save(
            json!({"goal": "g", "modifiedFiles": [{"path": "inside/a", "note": "n"}, "outside/x"]}),
        )
        .ok();
    assert!(
        saved["warnings"][0].as_str().unwrap().contains("outside/x"),
        "{saved}"
    );
    let file = crate::support::checkpoint(&repo, "s-1");
    assert_eq!(
        (
            &file["modifiedFiles"][0]["path"],
            &file["modifiedFiles"][0]["note"]
        ),
        (&json!("real/a"), &json!("n"))
    );
}

#[test]
fn a_root_is_resolved_and_may_end_with_a_slash() {
    let world = World::new();
    let real = world.directory("real");
    std::os::unix::fs::symlink(&real, world.path().join("link")).unwrap();
    for given in [
        format!("{}/", real.display()),
        world.path().join("link").to_str().unwrap().to_owned(),
    ] {
        let mut client = world.client(world.home()).start();
        let saved = client.save(json!({"goal": "g", "projectRoot": given})).ok();
        assert!(
            saved["path"]
                .as_str()
                .unwrap()
                .starts_with(real.to_str().unwrap())
        );
    }
}

#[test]
fn client_roots_are_decoded_and_unusable_ones_passed_over() {
    let world = World::new();
    let cwd = world.directory("cwd");
    let spaced = world.directory("my project");
    let accented = world.directory("prøjekt ✓");
    let base = world.path().to_str().unwrap();
    for (uris, root, passed_over) in [
        (vec![format!("file://{base}/my%20project")], &spaced, 0),
        (vec![format!("file://{base}/my project")], &spaced, 0),
        (
            vec![format!("file://localhost{base}/my%20project/")],
            &spaced,
            0,
        ),
        (vec![format!("file:{base}/my%20project")], &spaced, 0),
        (
            vec![format!("file://{base}/pr%C3%B8jekt%20%E2%9C%93")],
            &accented,
            0,
        ),
        (vec![format!("FILE://{base}/prøjekt ✓")], &accented, 0),
        (
            vec![
                "http://x/y".to_owned(),
                format!("file://{base}/gone"),
                uri(&spaced),
            ],
            &spaced,
            2,
        ),
        (
            vec![
                "file://host/share".to_owned(),
                "file:///c%3A/Users".to_owned(),
            ],
            &cwd,
            2,
        ),
        (vec![spaced.to_str().unwrap().to_owned()], &cwd, 1),
        (vec![], &cwd, 0),
    ] {
        let mut client = world.client(&cwd).roots(Roots::Uris(uris.clone())).start();
        let saved = client.save(json!({"goal": "g"})).ok();
        assert!(
            saved["path"]
                .as_str()
                .unwrap()
                .starts_with(root.to_str().unwrap()),
            "{uris:?}: {saved}"
        );
        assert_eq!(
            saved["warnings"].as_array().unwrap().len(),
            passed_over,
            "{saved}"
        );
    }
    assert!(!world.path().join("my%20project").exists());
}

#[test]
fn a_client_that_answers_no_roots_falls_back_and_holds_up_nobody() {
    let world = World::new();
    let cwd = world.directory("cwd");
    let mut failing = world.client(&cwd).roots(Roots::Error).start();
    assert_eq!(root_of(&mut failing), cwd.to_str().unwrap());

    let mut silent = world
        .client(&cwd)
        .roots(Roots::Silent)
        .session("silent")
        .start();
    let call = silent.begin_call("save_session_checkpoint", json!({"goal": "g"}));
    let mut other = world.client(&cwd).session("other").start();
    other.save(json!({"goal": "g"})).ok();
    silent.end_call(&call).ok();
    // It is asked once: what comes next is the answer.
    let second = silent.begin_call("save_session_checkpoint", json!({"goal": "g"}));
    assert_eq!(silent.next().unwrap()["id"], second);
    let explicit = json!({"goal": "g", "projectRoot": cwd});
    silent.save(explicit).ok();
}

#[test]
fn roots_are_asked_for_once_and_again_when_they_changed() {
    let world = World::new();
    let [one, two] = ["one", "two"].map(|name| world.directory(name));
    let mut client = world
        .client(world.home())
        .roots(Roots::Uris(vec![uri(&one)]))
        .start();
    assert_eq!(root_of(&mut client), one.to_str().unwrap());
    client.roots = Roots::Uris(vec![uri(&two)]);
    assert_eq!(root_of(&mut client), one.to_str().unwrap());
    client.notify("notifications/roots/list_changed");
    assert_eq!(root_of(&mut client), two.to_str().unwrap());
}

#[test]
fn a_working_directory_that_is_no_project_is_refused() {
    let world = World::new();
    for cwd in [Path::new("/"), &world.home()] {
        let mut client = world.client(cwd).start();
        let error = client.save(json!({"goal": "g"})).error();
        assert!(
            error.contains("`projectRoot`") && error.contains("CHECKPOINT_PROJECT_ROOT"),
            "{error}"
        );
        client.load(json!({})).error();
    }
    assert!(!world.home().join(".claude-checkpoints").exists());
    assert!(!Path::new("/.claude-checkpoints").exists());
    std::fs::create_dir(world.home().join(".claude-checkpoints")).unwrap();
    world.client(world.home()).start().list(json!({})).error();
    // A home that is a repository, or holds checkpoints, is one.
    let mut client = world.client(world.home()).start();
    client
        .save(json!({"goal": "g", "projectRoot": world.home()}))
        .ok();
    client.save(json!({"goal": "g"})).ok();
}

#[test]
fn the_root_is_not_the_top_level_and_paths_are_relative_to_it() {
    let world = World::new();
    let repo = world.repository();
    repo.write("outside.rs", "x");
    repo.write("sub/app/inside.rs", "x");
    repo.write("sub/application/other.rs", "x");
    let mut client = world.client(repo.path("sub/app")).session("s-1").start();
    let absolute = repo.path("sub/app/inside.rs");
    client
        .save(json!({"goal": "g", "modifiedFiles": [{"path": absolute, "note": "n"}, "./x/../inside.rs"]}))
        .ok();
    let file = crate::support::checkpoint(repo.path("sub/app"), "s-1");
    let paths: Vec<_> = file["modifiedFiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["inside.rs"]);
    assert_eq!(file["modifiedFiles"][0]["note"], "n");
    assert_eq!(file["project"]["name"], "app");
    assert!(!repo.path(".claude-checkpoints").exists());
    let text = std::fs::read_to_string(repo.path("sub/app/.claude-checkpoints/s-1.json")).unwrap();
    assert!(
        !text.contains(world.path().to_str().unwrap()),
        "no absolute path is stored"
    );
}
