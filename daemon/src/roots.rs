//! Which directory is the project (contract §4), and which path in it a file is.
//!
//! The order: argument, variable, the client's roots, `CLAUDE_PROJECT_DIR`, the working directory. What
//! the caller said outright must be usable or is refused; what was only offered is passed over with a
//! warning.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use protocol::env::{self, Env};
use protocol::files;
use protocol::os::canonical;

use crate::checkpoint::input::{Refusal, quote};
use crate::checkpoint::limits;
use crate::dir::Stat;
use crate::os;

const OUTSIDE: &str = "it lies outside the project";

/// The project of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// Absolute, without links.
    pub(crate) path: PathBuf,
    pub(crate) warnings: Vec<String>,
}

/// The root that the caller named, if it named one.
pub(crate) fn named(argument: Option<&str>, env: &Env) -> Result<Option<Root>, Refusal> {
    let (path, name, instead) = if let Some(argument) = argument {
        (
            PathBuf::from(argument),
            "`projectRoot`",
            "pass the absolute path of an existing directory, such as `projectRoot: \"/home/me/project\"`",
        )
    } else if let Some(variable) = given(env, env::CHECKPOINT_PROJECT_ROOT) {
        (
            variable.into(),
            env::CHECKPOINT_PROJECT_ROOT,
            "correct the variable in the client's configuration, or pass `projectRoot` with the absolute path of an existing directory",
        )
    } else {
        return Ok(None);
    };
    match usable(&path) {
        Ok(path) => Ok(Some(Root {
            path,
            warnings: Vec::new(),
        })),
        Err(reason) => Err(Refusal(format!(
            "{name} is `{}`, which {reason}: {instead}.",
            quote(&path.to_string_lossy())
        ))),
    }
}

/// The root for a caller that named none: from the client's roots, its project, or its working directory.
pub(crate) fn offered(
    client_roots: &[String],
    env: &Env,
    is_other_client: bool,
    cwd: Option<&Path>,
    home: Option<&Path>,
) -> Result<Root, Refusal> {
    let mut warnings = Vec::new();
    for uri in client_roots {
        match from_uri(uri).and_then(|path| usable(&path)) {
            Ok(path) => return Ok(Root { path, warnings }),
            Err(reason) => warnings.push(format!(
                "Passed over the client's root `{}`: it {reason}.",
                quote(uri)
            )),
        }
    }
    let project = given(env, env::CLAUDE_PROJECT_DIR).filter(|_| !is_other_client);
    if let Some(project) = project {
        let path = PathBuf::from(project);
        return match usable(&path) {
            Ok(path) => Ok(Root { path, warnings }),
            Err(reason) => Err(Refusal(format!(
                "{} is `{}`, which {reason}: pass `projectRoot` with the absolute path of the project.",
                env::CLAUDE_PROJECT_DIR,
                quote(&path.to_string_lossy())
            ))),
        };
    }
    let refused = |what: String| {
        Refusal(format!(
            "{what}. Pass `projectRoot` with the absolute path of the project, or set {} in the client's configuration.",
            env::CHECKPOINT_PROJECT_ROOT
        ))
    };
    let Some(cwd) = cwd else {
        return Err(refused(
            "The client named no project, and its working directory can't be told".to_owned(),
        ));
    };
    let path = usable(cwd).map_err(|reason| {
        refused(format!(
            "The client named no project, and its working directory `{}` {reason}",
            quote(&cwd.to_string_lossy())
        ))
    })?;
    let home = home.and_then(|home| canonical(home).ok());
    if os::is_system_directory(&path) || (Some(&path) == home.as_ref() && !holds_a_project(&path)) {
        return Err(refused(format!(
            "The client named no project, and was started in `{}`, which is none",
            path.display()
        )));
    }
    Ok(Root { path, warnings })
}

/// A variable whose value isn't blank.
fn given<'a>(env: &'a Env, name: &str) -> Option<&'a OsStr> {
    env.get(name)
        .filter(|value| !value.to_string_lossy().trim().is_empty())
}

/// The directory that `path` is, or why it can't be the root.
fn usable(path: &Path) -> Result<PathBuf, String> {
    if !path.is_absolute() {
        return Err("is not an absolute path".to_owned());
    }
    let real = canonical(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "does not exist".to_owned(),
        _ => format!("can't be used ({error})"),
    })?;
    if !real.is_dir() {
        return Err("is not a directory".to_owned());
    }
    if is_git_directory(&real) {
        return Err("is a git directory".to_owned());
    }
    Ok(real)
}

/// The path of a `file:` URI. <https://www.rfc-editor.org/rfc/rfc8089>
fn from_uri(uri: &str) -> Result<PathBuf, String> {
    let rest = match uri.get(..5) {
        Some(scheme) if scheme.eq_ignore_ascii_case("file:") => &uri[5..],
        _ => return Err("is no `file://` URI".to_owned()),
    };
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => {
            let at = rest.find('/').unwrap_or(rest.len());
            let (host, path) = rest.split_at(at);
            if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
                return Err(format!("is on another host, `{}`", quote(host)));
            }
            path
        }
    };
    Ok(PathBuf::from(os::path_of_uri(path)))
}

/// Whether a home is a git top level, or holds checkpoints.
fn holds_a_project(path: &Path) -> bool {
    let exists = |name: &str| path.join(name).symlink_metadata().is_ok();
    exists(".git")
        || exists(files::LEGACY_FILE)
        || std::fs::read_dir(path.join(files::DIRECTORY)).is_ok_and(|mut entries| {
            entries.any(|entry| {
                let name = entry.map(|entry| entry.file_name()).unwrap_or_default();
                name.to_str().and_then(files::session_of).is_some()
            })
        })
}

/// Whether a directory is git's own, where nothing of ours may be: inside `.git`, or a bare repository.
fn is_git_directory(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == ".git")
        || (path.join("HEAD").is_file()
            && path.join("objects").is_dir()
            && path.join("refs").is_dir())
}

/// A file as the agent named it → its path relative to the root, `/`-separated, or why it has none.
pub(crate) fn relative(root: &Path, given: &str) -> Result<String, &'static str> {
    let given = Path::new(given);
    let inside = if given.is_absolute() {
        match given.strip_prefix(root) {
            Ok(inside) => inside.to_path_buf(),
            Err(_) => through_links(root, given).ok_or(OUTSIDE)?,
        }
    } else {
        given.to_path_buf()
    };
    let inside = parts(&inside)?.join("/");
    // git knows nothing behind a link, so a path that leads through one is the path it leads to.
    let path = root.join(&inside);
    let real = match path.parent().map(canonical) {
        Some(Ok(directory)) if !path.starts_with(&directory) => {
            through_links(root, &path).ok_or(OUTSIDE)?
        }
        _ => PathBuf::from(inside),
    };
    let real = spelt(root, real);
    let parts = parts(&real)?;
    if parts.is_empty() {
        return Err("it is the project itself");
    }
    if parts.iter().any(|part| files::is_ours(part)) {
        return Err("checkpoint files are never recorded");
    }
    if parts.contains(&".git") {
        return Err("it lies in a git directory");
    }
    let path = parts.join("/");
    if path.chars().count() > limits::PATH {
        return Err("its name is too long");
    }
    Ok(path)
}

/// The names of a relative path, without `.` and `..`.
fn parts(path: &Path) -> Result<Vec<&str>, &'static str> {
    let mut parts: Vec<&str> = Vec::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                parts.pop().ok_or(OUTSIDE)?;
            }
            Component::Normal(name) => parts.push(name.to_str().ok_or("it is no Unicode")?),
            Component::RootDir | Component::Prefix(_) => return Err(OUTSIDE),
        }
    }
    Ok(parts)
}

/// An absolute path whose directory leads into the root through a link.
fn through_links(root: &Path, given: &Path) -> Option<PathBuf> {
    let directory = canonical(given.parent()?).ok()?;
    let path = directory.join(given.file_name()?);
    path.strip_prefix(root).ok().map(Path::to_path_buf)
}

/// A path with its file's name as the directory has it: where case or composition don't tell names apart, git still
/// knows one of them alone.
fn spelt(root: &Path, path: PathBuf) -> PathBuf {
    if !os::FOLDS_NAMES {
        return path;
    }
    own_name(&root.join(&path)).map_or(path.clone(), |name| path.with_file_name(name))
}

/// The name that a file has in its directory, if it isn't found by that name already.
fn own_name(place: &Path) -> Option<OsString> {
    let own = Stat::at(place).ok()?.identity();
    let directory = place.parent()?;
    let names = || {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.file_name()))
    };
    if names().any(|name| Some(name.as_os_str()) == place.file_name()) {
        return None;
    }
    names().find(|name| Stat::at(&directory.join(name)).is_ok_and(|stat| stat.identity() == own))
}
