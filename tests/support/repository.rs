//! A git repository to play with, driven by the real git.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A work tree.
pub(crate) struct Repository {
    root: PathBuf,
    home: PathBuf,
}

impl Repository {
    pub(crate) fn at(root: PathBuf, home: PathBuf) -> Repository {
        Repository { root, home }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(&path, content)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).expect("a file to remove");
    }

    /// Runs git and gives its output without the final newline; panics where git fails.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let (ok, out, err) = self.try_git(arguments);
        assert!(ok, "git {arguments:?}: {err}");
        out
    }

    /// Runs git: whether it succeeded, its output, its complaints.
    pub(crate) fn try_git(&self, arguments: &[&str]) -> (bool, String, String) {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.home)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "Test")
            .env("GIT_AUTHOR_EMAIL", "test@localhost")
            .env("GIT_COMMITTER_NAME", "Test")
            .env("GIT_COMMITTER_EMAIL", "test@localhost")
            .output()
            .expect("git runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().to_owned();
        (
            output.status.success(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    /// Commits what is staged.
    pub(crate) fn commit(&self, message: &str) {
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
    }

    pub(crate) fn commit_all(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.commit(message);
    }

    pub(crate) fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// The blob hash of a file's raw content, by git.
    pub(crate) fn hash(&self, name: &str) -> String {
        self.git(&["hash-object", "--no-filters", "--", name])
    }
}

impl AsRef<Path> for Repository {
    fn as_ref(&self) -> &Path {
        &self.root
    }
}
